"""A record of every TrainJob as the cluster's API server saw it."""

from __future__ import annotations

import pytest

from tests.support.trainjob_audit import AuditLog


@pytest.fixture(scope="session")
def audit(laptop):
    with AuditLog(laptop) as log:
        yield log

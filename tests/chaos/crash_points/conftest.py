"""A cluster whose API server's story of every TrainJob is written down."""

from __future__ import annotations

import pytest

from tests.support.trainjob_audit import AuditLog


@pytest.fixture(scope="session")
def audit(laptop):
    with AuditLog(laptop) as log:
        yield log

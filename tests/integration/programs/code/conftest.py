from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.programs.code.packed_project import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod.create(tmp_path / "pod")

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport, export_command, export_environment
from tests.support.export_runs import make_model, make_run


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a workspace with a finished run of two epochs and its base model."""
    make_model(tmp_path / "workspace" / "model")
    make_run(tmp_path / "workspace" / "output")
    return tmp_path / "workspace"


@pytest.fixture
def start_export(workspace: Path, tmp_path: Path) -> StartExport:
    """Return a function that starts the export program with the Trainer's libraries."""

    def start(destination: object, *more: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            export_command(workspace, destination, *more),
            env=export_environment(tmp_path, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run_export(start_export: StartExport) -> RunExport:
    """Return a function that runs the export to its end."""

    def run(destination: object, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = start_export(destination, *more, **env)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run

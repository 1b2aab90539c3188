"""Command and environment of the export program, run with the libraries of the Trainer's model-initializer image."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
PYTHON = ROOT / ".venv" / "initializer" / "bin" / "python"
BASE_ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}

RunExport = Callable[..., subprocess.CompletedProcess[str]]
StartExport = Callable[..., "subprocess.Popen[str]"]


def export_command(workspace: Path, destination: object, *more: str) -> list[str]:
    folders = ["--output", str(workspace / "output"), "--model", str(workspace / "model")]
    return [str(PYTHON), "-m", "trainjob.programs.export", *folders, "--destination", str(destination), *more]


def export_environment(home: Path, **env: str) -> dict[str, str]:
    common = {"PYTHONPATH": str(ROOT / "core" / "src"), "HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    return {**BASE_ENVIRONMENT, **common, "AWS_EC2_METADATA_DISABLED": "true", **env}


def read_receipt(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the receipt of an export, which must have succeeded."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))
    return found

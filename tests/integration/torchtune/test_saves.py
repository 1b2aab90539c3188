"""A save that is killed at any moment leaves the previous or the new epoch complete, so that a run can resume."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from trainjob.frameworks.torchtune.framework import PROGRAM_DEPENDENCIES
from trainjob.packing import program_command

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.torchtune, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_save_that_is_killed_leaves_a_complete_epoch(kind, tmp_path):
    python, program = ROOT / ".venv/torchtune/bin/python", Path(__file__).with_name("killed_saves.py")
    sources = tmp_path / "sources.zip"  # as in the pod, where this project is not installed
    sources.write_bytes(
        zlib.decompress(
            base64.b64decode(program_command("trainjob.frameworks.torchtune.pod", *PROGRAM_DEPENDENCIES)[3])
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [python, program, tmp_path / kind, kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert [kill for kill in found if kill["epoch"] not in (1, 2) or not (kill["loaded"] and kill["same_files"])] == []
    epochs = [kill["epoch"] for kill in found if kill["kill"].startswith("file access")]
    assert len(epochs) > 20
    # From one file access on, the new epoch is complete, and it stays complete.
    assert (epochs[0], epochs[-1], epochs == sorted(epochs)) == (1, 2, True)

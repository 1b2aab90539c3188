"""Whenever a save is killed, the epoch before or this one can be gone on from, and nothing half is left behind."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from trainjob.packing import program_command

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.torchtune, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_save_that_is_killed_leaves_a_whole_epoch(kind, tmp_path):
    python, program = ROOT / ".venv/torchtune/bin/python", Path(__file__).with_name("killed_saves.py")
    sources = tmp_path / "sources.zip"  # of the pod, where nothing of ours is installed
    sources.write_bytes(zlib.decompress(base64.b64decode(program_command("frameworks.torchtune.pod")[3])))
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [python, program, tmp_path / kind, kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert [one for one in found if one["epoch"] not in (1, 2) or not (one["loaded"] and one["alike"])] == []
    touches = [one["epoch"] for one in found if one["kill"].startswith("touch")]
    assert len(touches) > 20
    # From one touch on it is the new epoch, and it stays it.
    assert (touches[0], touches[-1], touches == sorted(touches)) == (1, 2, True)

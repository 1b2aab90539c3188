"""The demos, run as the README describes: complete chains with the real TorchTune and TRL that leave no processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py")]

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("torchrun_lock")]


def find_demo_processes(mark: str) -> list[str]:
    """Return the command lines of the processes that a demo started.

    They have the mark in their environment, or the demo's folder in their command.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:  # the process has just ended
            continue
        if mark.encode() in environment or str(ROOT / ".cache" / "demo").encode() in command:
            found.append(command.decode(errors="replace"))
    return found


@pytest.fixture
def demo_mark(monkeypatch):
    value = uuid.uuid4().hex
    monkeypatch.setenv("DEMO_MARK", value)
    return value


# 340 rows in batches of 8, four times; TorchTune leaves out the last batch of each epoch, which is not full.
STEPS = {"torchtune": 168, "trl": 172}


@pytest.mark.parametrize("framework", STEPS)
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_the_model_learns(engine, framework, demo_mark):
    done = subprocess.run([*DEMO, engine, "--framework", framework], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    score = re.fullmatch(r"exact match: (\d+)/60 -> (\d+)/60", last)
    assert score, last
    assert int(score[1]) <= 5
    assert int(score[2]) >= 50
    assert [line for line in lines if re.match(r"chain +\d+\.\d s", line)], lines
    [folder] = [ROOT / line.removeprefix("export: ") for line in lines if line.startswith("export: ")]
    assert {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"} <= {p.name for p in folder.iterdir()}
    steps = STEPS[framework]
    assert any(f"{steps}/{steps} (100 %)" in line for line in lines)
    wait_until(lambda: not find_demo_processes(demo_mark))


def test_a_second_demo_is_refused_and_an_interrupted_demo_stops_its_processes(demo_mark):
    with subprocess.Popen([*DEMO, "kfp"], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("fine-tune") and "Running" in line:
                assert find_demo_processes(demo_mark)
                second = subprocess.run([*DEMO, "kfp"], capture_output=True, text=True)
                assert (second.returncode, second.stdout) == (1, "")
                assert "already running this demo" in second.stderr
                os.kill(process.pid, signal.SIGINT)
                break
        process.stdout.read()
    assert process.returncode == 130
    wait_until(lambda: not find_demo_processes(demo_mark))

"""Real trainings that hang when they open a given file, and what their watchdog reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainjob import Watchdog
from trainjob.spec import FrameworkConfig
from trainjob.status import Category

__all__ = ["check_hang", "hanging_environment"]

# Every Python of the pod runs this program. It hangs when a file is opened for writing whose path ends with HANG_AT.
_PROGRAM = """
import os, sys, threading

def wait_for_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def hang(event, arguments):
    if event == "open" and "w" in str(arguments[1]) and str(arguments[0]).endswith(os.environ["HANG_AT"]):
        wait_for_lock()

sys.addaudithook(hang)
"""


@pytest.fixture
def hanging_environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a training that hangs."""
    folder = tmp_path / "hanging"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_PROGRAM)
    return {"PYTHONPATH": str(folder)}


def check_hang(
    run_training: Callable[..., Any], environment: dict[str, str], config: FrameworkConfig, hang_at: str, step: int
) -> None:
    """Check that the watchdog ends a training which hangs at a file after a step."""
    watchdog = Watchdog(silence="10s", action="fail")
    outcome, lines = run_training("run", config, env={**environment, "HANG_AT": hang_at}, watchdog=watchdog)
    assert outcome.category is Category.HUNG, [outcome.explain(), *lines[-20:]]
    assert outcome.hang.startswith("rank 0 of 1 on node-0 (laptop) has made no step for "), outcome.hang
    assert f" since step {step}: it is in wait_for_lock (hanging/sitecustomize.py:" in outcome.hang, outcome.hang
    assert any("watchdog: rank 0: " in line and line.endswith(" in wait_for_lock") for line in lines)

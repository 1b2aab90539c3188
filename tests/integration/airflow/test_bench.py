"""Tests that each part of `make bench` measures and reports, with the smallest sizes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "tools" / "bench"
PARTS = sorted(path.stem.removeprefix("bench_") for path in BENCH.glob("bench_*.py"))
pytestmark = pytest.mark.skipif(Path(sys.prefix).name != "airflow", reason="make bench runs in .venv/airflow")
# They start other programs, a complete Airflow, or train with TRL.
SLOW = {"data", "flood", "resumption", "stores", "training"}


@pytest.mark.parametrize("part", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in PARTS])
def test_each_part_measures_and_reports(part, tmp_path):
    if part == "data" and not shutil.which("aria2c"):
        pytest.skip("needs Debian's packages nginx-light and aria2")
    if part == "stores" and not shutil.which("go"):
        pytest.skip("needs Go, which builds s5cmd and versitygw")
    environment = {**os.environ, "BENCH_SMALLEST": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(BENCH / "bench.py"), part, "--results", str(tmp_path / "results")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    assert done.stdout.count("\n## ") >= 2  # the part's section, and the goals

"""The cases of docs/evidence/gpu.md with a tiny model on a CPU, and what their program refuses."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.support.training_fixtures import ROOT
from tools.gpu.page import CASES, PAGE

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]


def run_program(*arguments):
    folders = (ROOT, ROOT / "core/src", ROOT / "laptop/src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [ROOT / ".venv/trl/bin/python", "-m", "tools.gpu", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_all_cases_pass_with_a_tiny_model_on_a_cpu(tmp_path):
    before = PAGE.read_bytes()
    options = ("--out", tmp_path / "out", "--keep", tmp_path / "files", "--minutes", "25")
    done = run_program("--device", "cpu", "--tiny", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out/results.json").read_text())
    expected = {name: "not run: it needs a GPU" if name == "qlora" else "passed" for name in CASES}
    assert {row["case"]: row["result"] for row in found["rows"]} == expected
    page = (tmp_path / "out/gpu.md").read_text()
    assert "| card | none, a CPU |" in page
    assert str(tmp_path) not in page
    assert PAGE.read_bytes() == before


def test_the_page_of_the_repository_never_gets_results_of_a_cpu():
    done = run_program("--device", "cpu", "--tiny")
    assert done.returncode == 2
    assert "need --out" in done.stderr

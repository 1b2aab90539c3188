"""A model of any family is fetched, trained, merged and exported, and the exported model is the trained one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.training_fixtures import ROOT

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(1200, func_only=True)]

PROGRAM = Path(__file__).with_name("trained_families.py")
FAMILIES = 21


def test_every_family_passes_every_step(hub, tmp_path, evidence):
    tokenizer, datasets = hub / "models" / "demo" / "tiny-llama", hub / "datasets" / "demo" / "tickets"
    command = [ROOT / ".venv" / "trl" / "bin" / "python", PROGRAM, tokenizer, datasets, tmp_path / "families"]
    paths = (ROOT, ROOT / "core" / "src", ROOT / "laptop" / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for results in found:
        evidence("models", **results)
    assert len(found) == FAMILIES
    assert [
        (results["family"], step, result)
        for results in found
        for step, result in results.items()
        if step != "family" and not result.startswith("ok")
    ] == []

"""The components with the newest kfp; tests/integration/packaging runs one with the packages of its image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.uv import UV

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "integration" / "kfp" / "golden"


pytestmark = pytest.mark.timeout(300)


def run_uv(*words):
    subprocess.run([UV, words[0], "-q", *map(str, words[1:])], check=True, timeout=200)


def create_environment(folder):
    run_uv("venv", "--python", ROOT / ".venv" / "kfp" / "bin" / "python", folder)
    return folder


def test_the_newest_kfp_compiles_the_same_components(tmp_path):
    """The dependencies are those of the locked kfp, because the newest ones may not be in the registry yet."""
    python = create_environment(tmp_path / "python")
    run_uv("pip", "sync", "--python", python, ROOT / "requirements" / "kfp.txt")
    newest = ("kfp>=2.17,<3", "kfp-kubernetes>=2.17,<3", "kfp-pipeline-spec>=2.17,<3")
    run_uv("pip", "install", "--no-deps", "--upgrade", "--python", python, *newest)
    command = [python / "bin" / "python", GOLDEN.parent / "golden.py", tmp_path / "golden"]
    subprocess.run(command, check=True, timeout=120)
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "golden").iterdir()}
    assert made == {path.name: path.read_text("utf-8") for path in GOLDEN.iterdir()}

"""The components as their users have them: in the image's packages, and written with the newest kfp."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.component_runs import run_component

ROOT = Path(__file__).resolve().parents[3]
UV = shutil.which("uv") or str(ROOT / ".venv" / "uv" / "bin" / "uv")
GOLDEN = ROOT / "tests" / "integration" / "kfp" / "golden"


pytestmark = pytest.mark.timeout(300)


def run_uv(*words):
    subprocess.run([UV, words[0], "-q", *map(str, words[1:])], check=True, timeout=200)


def create_environment(folder):
    run_uv("venv", "--python", ROOT / ".venv" / "kfp" / "bin" / "python", folder)
    return folder


def test_a_component_runs_in_what_the_containerfile_installs(laptop, tmp_path, unique):
    """The same lines into an environment instead of an image: no container engine is needed for that."""
    python = create_environment(tmp_path / "python")
    for project in ("core", "components/kfp"):
        run_uv("build", "--wheel", "-o", tmp_path / "dist", ROOT / project)
    text = (ROOT / "components" / "kfp" / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    for line in re.findall(r"(?<= )pip install --no-cache-dir ([^&\n]+)", text):
        words = [word.replace("/requirements", f"{ROOT}/requirements") for word in line.split()]
        words = [path for word in words for path in (tmp_path.glob(word[1:]) if "*" in word else [word])]
        run_uv("pip", "install", "--python", python, *words)
    arguments = {"image": "busybox", "command": ["echo", "hello"]}
    run = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": unique}
    done, told = run_component((GOLDEN / "train.yaml").read_text(), tmp_path, arguments, python=python, **run)
    assert done.returncode == 0, done.stdout
    assert told["status"] == "Complete"


def test_the_newest_kfp_compiles_to_the_same(tmp_path):
    """Its own dependencies are those of the locked kfp: the newest may pin what a registry does not have yet."""
    python = create_environment(tmp_path / "python")
    run_uv("pip", "sync", "--python", python, ROOT / "requirements" / "kfp.txt")
    newest = ("kfp>=2.17,<3", "kfp-kubernetes>=2.17,<3", "kfp-pipeline-spec>=2.17,<3")
    run_uv("pip", "install", "--no-deps", "--upgrade", "--python", python, *newest)
    command = [python / "bin" / "python", GOLDEN.parent / "golden.py", tmp_path / "golden"]
    subprocess.run(command, check=True, timeout=120)
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "golden").iterdir()}
    assert made == {path.name: path.read_text("utf-8") for path in GOLDEN.iterdir()}

"""The components as users install them: with the image's packages, and with the newest kfp."""

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


def test_a_component_runs_with_the_packages_of_the_containerfile(laptop, tmp_path, unique):
    """The packages of the Containerfile are installed into an environment, which needs no container engine."""
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
    done, outputs = run_component((GOLDEN / "train.yaml").read_text(), tmp_path, arguments, python=python, **run)
    assert done.returncode == 0, done.stdout
    assert outputs["status"] == "Complete"


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

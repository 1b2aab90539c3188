"""Tests of the Containerfile of the components' image; test_kfp_packages.py runs a component with its packages."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.component_runs import LAUNCHER
from trainjob_kfp.image import BASE_IMAGE

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "components" / "kfp" / "Containerfile").read_text("utf-8").replace("\\\n", " ")
STEPS = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]
LOCKED = [
    Requirement(line.removesuffix("\\"))
    for line in (ROOT / "requirements" / "launcher.txt").read_text("utf-8").splitlines()
    if line[0] not in " #"
]


def instructions(instruction):
    return [words for name, words in STEPS if name == instruction]


def pip_lines():
    """Return the words after each `pip install`."""
    [run] = instructions("RUN")
    return [line.split() for line in re.findall(r"pip install ([^&]+)", run)]


def test_the_base_image_has_a_version():
    [base] = instructions("FROM")
    found = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", base)
    assert BASE_IMAGE.endswith(f"-python{found[1]}")
    assert "latest" not in TEXT


def test_the_user_is_a_number_and_not_root():
    """Kubernetes' runAsNonRoot cannot check a user that is given by name."""
    assert STEPS[-1][0] == "USER"
    user, group = STEPS[-1][1].split(":")
    assert int(user) >= 1000
    assert int(group) >= 1000


def test_pip_uses_no_cache_and_resolves_no_dependencies():
    for words in pip_lines():
        assert {"--no-cache-dir", "--no-deps"} <= set(words)


def test_the_image_has_the_packages_of_the_launcher_environment():
    """Tests in the launcher environment are therefore also valid for the image."""
    [first, _wheels] = pip_lines()
    assert "/requirements/launcher.txt" in first
    assert f"kfp=={version('kfp')}" in first
    listing = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    done = subprocess.run([LAUNCHER / "bin" / "python3", "-c", listing], capture_output=True, text=True, check=True)
    found = {re.sub(r"[-_.]+", "-", line.lower()) for line in done.stdout.split()}
    expected = {f"{item.name}{item.specifier}" for item in LOCKED if item.marker is None or item.marker.evaluate()}
    assert found == {re.sub(r"[-_.]+", "-", name) for name in expected | {f"kfp=={version('kfp')}"}}

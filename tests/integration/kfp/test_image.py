"""The components' image: what its Containerfile says. test_kfp_packages.py runs a component in what it installs."""

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
    Requirement(line)
    for line in (ROOT / "requirements" / "launcher.txt").read_text("utf-8").splitlines()
    if line[0] not in " #"
]


def instructions(instruction):
    return [words for name, words in STEPS if name == instruction]


def pip_lines():
    """The words after `pip install` of each."""
    [run] = instructions("RUN")
    return [line.split() for line in re.findall(r"pip install ([^&]+)", run)]


def test_its_base_is_named_with_a_version():
    [base] = instructions("FROM")
    found = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", base)
    assert BASE_IMAGE.endswith(f"-python{found[1]}")
    assert "latest" not in TEXT


def test_its_user_is_a_number_and_not_root():
    """Kubernetes' runAsNonRoot can't tell who a name is."""
    assert STEPS[-1][0] == "USER"
    user, group = STEPS[-1][1].split(":")
    assert int(user) >= 1000
    assert int(group) >= 1000


def test_its_pip_keeps_nothing_and_resolves_nothing():
    for words in pip_lines():
        assert {"--no-cache-dir", "--no-deps"} <= set(words)


def test_it_holds_what_the_launcher_environment_holds():
    """So that the tests which run there are about the image."""
    [first, _wheels] = pip_lines()
    assert "/requirements/launcher.txt" in first
    assert f"kfp=={version('kfp')}" in first
    listing = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    done = subprocess.run([LAUNCHER / "bin" / "python3", "-c", listing], capture_output=True, text=True, check=True)
    found = {re.sub(r"[-_.]+", "-", line.lower()) for line in done.stdout.split()}
    wanted = {f"{one.name}{one.specifier}" for one in LOCKED if one.marker is None or one.marker.evaluate()}
    assert found == {re.sub(r"[-_.]+", "-", name) for name in wanted | {f"kfp=={version('kfp')}"}}

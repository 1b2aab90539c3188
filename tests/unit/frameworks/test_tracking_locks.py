"""Locks of the trackers' libraries, which pods install: each agrees with the tested environment."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainjob.manifest.tracking import LIBRARIES

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
ROOTS = {"mlflow": "mlflow-skinny", "wandb": "wandb", "tensorboard": "tensorboardx"}
PYTHONS = ("3.11", "3.12", "3.13")


def read_lock(backend):
    """Return the lines of a lock as requirement and hashes."""
    lines = importlib.import_module(f"trainjob.frameworks.tracking.locks.{LIBRARIES[backend]}").REQUIREMENTS
    parts = [line.split(" --hash=") for line in lines]
    return [(Requirement(requirement), hashes) for requirement, *hashes in parts]


@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_lock_has_the_tested_versions(backend):
    found = re.findall(r"^([\w.-]+)(==\S+)", (REQUIREMENTS / "tracking.txt").read_text(), re.MULTILINE)
    tested = {(canonicalize_name(name), version) for name, version in found}
    lock = {(canonicalize_name(requirement.name), str(requirement.specifier)) for requirement, _ in read_lock(backend)}
    assert lock <= tested
    assert ROOTS[backend] in {name for name, _ in lock}


@pytest.mark.parametrize("backend", LIBRARIES)
@pytest.mark.parametrize("python", PYTHONS)
def test_pip_accepts_a_lock_on_each_python(backend, python):
    """With `--require-hashes`, each package needs hashes, and may have only one version."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    used = [
        (canonicalize_name(requirement.name), hashes)
        for requirement, hashes in read_lock(backend)
        if not requirement.marker or requirement.marker.evaluate(environment)
    ]
    names = [name for name, _ in used]
    assert len(names) == len(set(names))
    assert "torch" not in names
    for _, hashes in used:
        assert hashes
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes)

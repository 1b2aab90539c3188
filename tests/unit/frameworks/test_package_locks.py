"""Locks of the libraries that pods install: each agrees with the tested environment."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainjob.manifest.tracking import LIBRARIES

ROOT = Path(__file__).resolve().parents[3]
ROOTS = {"mlflow": "mlflow-skinny", "wandb": "wandb", "tensorboard": "tensorboardx"}
# The module of each lock, the tested environment, and the package for which the lock is.
LOCKS = {
    **{
        backend: (f"frameworks.tracking.locks.{LIBRARIES[backend]}", "requirements/tracking.txt", ROOTS[backend])
        for backend in LIBRARIES
    },
    "datasets": ("programs.fetch.rows.lock", "laptop/src/trainjob_local/requirements/initializer.txt", "datasets"),
}
PYTHONS = ("3.11", "3.12", "3.13")


def read_lock(name):
    """Return the lines of a lock as requirement and hashes."""
    lines = importlib.import_module(f"trainjob.{LOCKS[name][0]}").REQUIREMENTS
    parts = [line.split(" --hash=") for line in lines]
    return [(Requirement(requirement), hashes) for requirement, *hashes in parts]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_the_tested_versions(name):
    _, environment, root = LOCKS[name]
    found = re.findall(r"^([\w.-]+)(==\S+)", (ROOT / environment).read_text(), re.MULTILINE)
    tested = {(canonicalize_name(package), version) for package, version in found}
    lock = {(canonicalize_name(requirement.name), str(requirement.specifier)) for requirement, _ in read_lock(name)}
    assert lock <= tested
    assert root in {package for package, _ in lock}


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_pip_accepts_a_lock_on_each_python(name, python):
    """With `--require-hashes`, each package needs hashes, and may have only one version."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    used = [
        (canonicalize_name(requirement.name), hashes)
        for requirement, hashes in read_lock(name)
        if not requirement.marker or requirement.marker.evaluate(environment)
    ]
    names = [package for package, _ in used]
    assert len(names) == len(set(names))
    assert "torch" not in names
    for _, hashes in used:
        assert hashes
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes)

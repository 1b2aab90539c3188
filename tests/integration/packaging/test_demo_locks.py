"""Locks of the engines' environments in the wheel of `trainjob-demo`."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainjob_demo.environments import select_locks

ROOT = Path(__file__).resolve().parents[3]
OUR_DISTRIBUTIONS = {"airflow": "providers/airflow", "kfp": "components/kfp"}


def read_pins(path):
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_the_engine_gets_this_release(engine):
    packages = [Requirement(text) for text in select_locks([engine])[engine].packages]
    assert {str(package.specifier) for package in packages} == {f"=={version('trainjob')}"}
    project = tomllib.loads((ROOT / OUR_DISTRIBUTIONS[engine] / "pyproject.toml").read_text("utf-8"))["project"]
    assert [package.name for package in packages] == [project["name"], "trainjob"]


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_the_lock_has_what_our_packages_require(engine):
    """The lock has hashes, so a requirement that it lacked would be installed without them."""
    locked = {name for name, _ in read_pins(select_locks([engine])[engine].requirements)}
    for folder in (OUR_DISTRIBUTIONS[engine], "core"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).get("author", [])
        required = {canonicalize_name(Requirement(text).name) for text in [*project["dependencies"], *extras]}
        assert required - {"trainjob"} <= locked


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_this_checkout_tests_the_versions_of_the_lock(engine):
    tested = read_pins(ROOT / "requirements" / f"{engine}.txt")
    assert read_pins(select_locks([engine])[engine].requirements) <= tested

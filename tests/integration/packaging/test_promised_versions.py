"""Metadata of the distributions: the Python versions of `make versions`, and one version for all of them."""

from __future__ import annotations

import pytest
import tomllib
from packaging.requirements import Requirement

import trainjob
from tests.integration.packaging.versions import DISTRIBUTIONS, PYTHONS, ROOT, promised_pythons


@pytest.mark.parametrize("folder", [folder for distribution in DISTRIBUTIONS for folder in distribution.folders])
def test_requires_python_is_the_lowest_classifier(folder):
    promised = promised_pythons(folder)
    assert promised == list(PYTHONS[PYTHONS.index(promised[0]) :])
    text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
    assert tomllib.loads(text)["project"]["requires-python"] == f">={promised[0]}"


ROOT_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
VERSION = ROOT_PROJECT["tool"]["bumpversion"]["current_version"]
FOLDERS = [folder for distribution in DISTRIBUTIONS for folder in distribution.folders]
PROJECTS = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in FOLDERS]


def test_all_distributions_have_the_version_that_make_bump_sets():
    assert {project["version"] for project in PROJECTS} == {VERSION}
    assert trainjob.__version__ == VERSION


def test_all_distributions_require_exactly_each_others_version():
    """A step and its launcher belong to one release."""
    names = {project["name"] for project in PROJECTS}
    groups = [
        group for one in PROJECTS for group in (one["dependencies"], *one.get("optional-dependencies", {}).values())
    ]
    required = [Requirement(text) for group in groups for text in group]
    own = [item for item in required if item.name in names]
    assert own
    assert {str(item.specifier) for item in own} == {f"=={VERSION}"}

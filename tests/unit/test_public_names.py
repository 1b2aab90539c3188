"""Tests of `dir()` and `__version__` of the packages whose names are imported on first use."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import pytest

DISTRIBUTIONS = {
    "trainjob": "trainjob",
    "trainjob_local": "trainjob-local",
    "trainjob_migrate": "trainjob-migrate",
    "trainjob_demo": "trainjob-demo",
}


@pytest.mark.parametrize(("package", "distribution"), DISTRIBUTIONS.items())
def test_version_is_that_of_the_distribution(package, distribution):
    assert importlib.import_module(package).__version__ == version(distribution)


@pytest.mark.parametrize("package", ["trainjob", "trainjob_local", "trainjob_local.apiserver"])
def test_dir_lists_the_public_names(package):
    """Completion in a notebook shows what `dir` lists."""
    module = importlib.import_module(package)
    assert set(dir(module)) - {"__version__"} == set(module.__all__)
    assert all(getattr(module, name) is not None for name in dir(module))

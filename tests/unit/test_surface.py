"""Tests of the public names and their docstrings."""

from __future__ import annotations

import inspect

import trainjob
from trainjob import client, errors, lifecycle, manifest, retention, spec, status

PACKAGES = (errors, spec, manifest, status, client, lifecycle, retention)


def test_the_public_names_are_sorted_and_exist():
    assert trainjob.__all__ == sorted(trainjob.__all__)
    assert all(getattr(trainjob, name) is not None for name in trainjob.__all__)


def test_every_public_class_and_function_has_a_docstring():
    for package in PACKAGES:
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                assert inspect.getdoc(found), f"{package.__name__}.{name}"

"""What is public is a promise: these names, and a word on each."""

from __future__ import annotations

import inspect

import trainjob
from trainjob import errors, manifest, run, spec, status

ROOMS = (errors, spec, manifest, status, run)


def test_the_public_names_are_sorted_and_there():
    assert trainjob.__all__ == sorted(trainjob.__all__)
    assert all(getattr(trainjob, name) is not None for name in trainjob.__all__)


def test_every_public_class_and_function_says_what_it_is():
    for room in ROOMS:
        for name in room.__all__:
            found = getattr(room, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                assert inspect.getdoc(found), f"{room.__name__}.{name}"

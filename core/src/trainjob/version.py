"""Version of `trainjob`, and its check by a program that a pod runs from its image."""

from __future__ import annotations

from collections.abc import Sequence

from trainjob.errors import InvalidSpec, Problem

__all__ = ["VERSION", "VERSION_OPTION", "check_version"]

VERSION = "0.1.0"
"""Version of this distribution. A constant, because a packed program and embedded sources have no package metadata."""
VERSION_OPTION = "--trainjob-version"
"""First argument of a program from an image: the version of `trainjob` that wrote the other arguments."""


def check_version(arguments: Sequence[str]) -> list[str]:
    """Return a program's arguments without the version that wrote them.

    A packed program has no such argument, because the version that packed it also wrote its arguments. Versions that
    differ only in their last number have the same arguments.

    Raises:
        InvalidSpec: the program in the image belongs to another version.
    """
    if list(arguments[:1]) != [VERSION_OPTION]:
        return list(arguments)
    written_by = "".join(arguments[1:2])
    if _get_release_series(written_by) != _get_release_series(VERSION):
        rule = (
            f"trainjob {written_by or 'of an unknown version'} created this TrainJob: use an image with trainjob "
            f"{_get_release_series(written_by) or 'of that version'}, or give program='packed'"
        )
        raise InvalidSpec(Problem("image", f"trainjob {VERSION}", rule))
    return list(arguments[2:])


def _get_release_series(version: str) -> str:
    return ".".join(version.split(".")[:2])

"""Lists of pinned packages that uv writes, and their comparison with the packages of the image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Requirement", "normalize", "parse_list", "select_missing"]

_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
# A path; `name @ URL` and `git+https:` are no paths, but `name @ file:///` is.
_LOCAL = re.compile(r"(?:\.{0,2}/|\.\.?$|file:|[\w.-]+(?:\[[^\]]*\])? @ file:)")
_VIA = re.compile(r"# +(?:via *)?(.*)")


@dataclass
class Requirement:
    """A line of a list, with the lines that belong to it.

    Attributes:
        text: the requirement with its marker and hashes, without comments; an editable one is a plain path.
        name: normalized name; empty for a path or an option.
        version: pinned version; empty for a URL, a path or an option.
        via: normalized names of the packages and files that require it.
    """

    text: str
    name: str
    version: str
    via: set[str]

    @property
    def is_option(self) -> bool:
        """Whether the line is an option, such as `--extra-index-url`."""
        return self.text.startswith("-")

    @property
    def is_local(self) -> bool:
        """Whether the line is a path of the project or of the image."""
        return bool(_LOCAL.match(self.text))

    @property
    def is_project(self) -> bool:
        """Whether the line is the project itself, whose code needs no installation."""
        return bool(re.match(r"\./?(\[[^\]]*\])?( *;.*)?$", self.text))


def normalize(name: str) -> str:
    """Return a name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_list(text: str) -> list[Requirement]:
    """Return the requirements in a list that uv wrote."""
    found: list[Requirement] = []
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            if found and (via := _VIA.match(stripped)) and via[1]:
                found[-1].via.add(normalize(via[1]))
        elif stripped:
            requirement = " ".join(re.sub(r"^(-e|--editable)[ =]", "", stripped).split())
            pin, name = _PIN.match(requirement), _NAME.match(requirement)
            found.append(Requirement(requirement, normalize(name[0]) if name else "", pin[2] if pin else "", set()))
    return found


def select_missing(requirements: Iterable[Requirement], image: Mapping[str, str]) -> list[Requirement]:
    """Return the packages that have to be installed, without the project itself and options.

    A package that the image has in the pinned version is left out. If that is a build of its own, such as torch
    2.8.0+cu126, the packages that only this build requires are left out, too: the image has other ones for it.

    Args:
        requirements: the pinned packages.
        image: versions of the image's packages, by normalized name.
    """
    wanted = [each for each in requirements if not each.is_option and not each.is_project]
    missing = [each for each in wanted if not _is_satisfied(each.version, image.get(each.name, ""))]
    unneeded = {each.name for each in wanted if each not in missing and "+" in image[each.name]}
    while found := [each for each in missing if each.via and each.via <= unneeded]:
        unneeded.update(each.name for each in found)
        missing = [each for each in missing if each not in found]
    return missing


def _is_satisfied(pinned: str, version: str) -> bool:
    """Return whether a version of the image is the pinned one, as PEP 440's `==`."""
    return bool(pinned) and pinned in (version, version.partition("+")[0])

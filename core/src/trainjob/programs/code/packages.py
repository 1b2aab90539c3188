"""Installation of a project's packages beside those of the image.

uv chooses the versions. For `uv.lock`, they are those of the groups that `uv sync` installs; `UV_NO_DEV=1` leaves out
the group `dev`. For `requirements.txt`, uv prefers the image's versions among those that the file allows. Only packages
that the image does not have in this version are installed.

The chosen versions and the installed packages are kept in a cache. So all nodes of a training have the same ones, and a
second start sends no request.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
import tempfile
import time
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.programs.code.failure import PackageFailure
from trainjob.programs.code.package_cache import PackageCache
from trainjob.programs.code.pip_settings import names_index, redact
from trainjob.programs.code.requirement_list import normalize, parse_list, select_missing
from trainjob.programs.code.uv_program import UvProgram, read_uv_variables

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

__all__ = ["install_packages"]

_UNUSED_DAYS = 30
_LIST = "requirements.txt"
# A version of PEP 440 in its normal form; uv refuses a list with another one.
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirements?|--constraints?)[ =]*([^\s#]+)")
_REQUIRED = re.compile(r"Requires-Dist: *([A-Za-z0-9][\w.-]*)")
_INDEX_OPTION = re.compile(r"(-i|-f|--(index-url|extra-index-url|find-links|no-index|trusted-host))\b")
_LISTS = (".txt", ".in")  # files in the format of pip
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "uv.toml")


def install_packages(folder: Path, file: str, code: str, cache_folder: str | None) -> Path | None:
    """Install the packages of a project.

    Args:
        folder: folder of the project; the working directory.
        file: `uv.lock` or `requirements.txt`, in the folder.
        code: digest of the project's files.
        cache_folder: folder for packages that pods share; None for a temporary one.

    Returns:
        Folder with the packages; None if the image has all of them.

    Raises:
        PackageFailure: the file does not exist, uv or pip failed, or the packages cannot be written.
    """
    if not (folder / file).is_file():
        raise PackageFailure(f"there is no {file} at the top of the project; add it and submit the job again")
    try:
        cache = PackageCache(cache_folder)
        cache.remove_old(_UNUSED_DAYS)
        project = _Project(folder, file, code)
        with UvProgram(project.variables) as uv:
            return _install(project, cache, uv)
    except OSError as error:
        raise PackageFailure(f"they cannot be written: {error}") from error


class _Project:
    """The project, with what the choice of its packages depends on.

    Attributes:
        folder: folder of the project.
        file: `uv.lock` or `requirements.txt`.
        code: digest of the project's files.
        image: the distributions of the image, by normalized name.
        variables: environment of uv.
        versions: versions of the image's packages.
        inputs: texts that decide about the versions, by the path of their file.
    """

    def __init__(self, folder: Path, file: str, code: str) -> None:
        self.folder = folder
        self.file = file
        self.code = code
        self.image = _list_image()
        self.variables = read_uv_variables(os.environ)
        self.versions = {name: each.version for name, each in self.image.items()}
        self.inputs = self._read_inputs()
        if any("--extra-index-url" in option for option in self.list_options()):
            # As pip, which takes the best version of all indexes.
            self.variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")

    def digest(self, *texts: str) -> str:
        """Return the digest of texts, of the Python, and of uv's settings.

        Credentials do not count, because some are new each day.
        """
        settings = [f"{name}={value}" for name, value in sorted(self.variables.items()) if name.startswith("UV_")]
        python = [sys.implementation.cache_tag or "", sys.version, sysconfig.get_platform()]
        parts = [*python, *map(redact, settings), *texts]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def list_options(self) -> list[str]:
        """Return the options of package indexes in requirements.txt and its included files."""
        lines = [
            line.strip() for name in self.inputs if name.endswith(_LISTS) for line in self.inputs[name].splitlines()
        ]
        return [line for line in lines if _INDEX_OPTION.match(line)]

    def has_paths(self) -> bool:
        """Return whether requirements.txt, or a file that it includes, has a path of a package."""
        texts = [text for name, text in self.inputs.items() if name.endswith(_LISTS)]
        return any(each.is_local for text in texts for each in parse_list(text))

    def _read_inputs(self) -> dict[str, str]:
        found = {}
        names = [self.file, *_PROJECT_FILES]
        for name in names:  # the list grows with the files that a file includes
            path = self.folder / name
            if name in found or not path.is_file():
                continue
            found[name] = path.read_text("utf-8", "replace")
            if name.endswith(_LISTS):
                included = [match[1] for line in found[name].splitlines() if (match := _INCLUDED.match(line))]
                names += [os.path.normpath(Path(name).parent / each) for each in included]
        return found


def _install(project: _Project, cache: PackageCache, uv: UvProgram) -> Path | None:
    image = "\n".join(f"{name}=={version}" for name, version in sorted(project.versions.items()))
    code = project.code if project.has_paths() else ""
    name = f"resolution-{project.digest(image, code, *map(str, project.inputs.items()))}"
    resolution = cache.get_or_create(name, lambda partial: _resolve(project, partial, uv))
    pinned = parse_list((resolution / _LIST).read_text("utf-8"))
    missing = select_missing(pinned, project.versions)
    if not missing:
        return None
    # The indexes of a lock apply unless the pod's variables name one, which may be the only one that can be reached.
    emitted = [] if names_index(project.variables) else [each.text for each in pinned if each.is_option]
    lines = [*emitted, *project.list_options(), *(each.text for each in missing)]
    code = project.code if any(each.is_local for each in missing) else ""
    name = f"packages-{project.digest(code, *lines)}"
    return cache.get_or_create(name, lambda partial: _fill(lines, partial, len(missing), uv))


def _resolve(project: _Project, folder: Path, uv: UvProgram) -> None:
    """Write the list of pinned packages into a folder."""
    output = folder / _LIST
    options = ["--quiet", "--no-header", "--python", sys.executable, "--output-file", str(output)]
    if project.file == "uv.lock":
        content = ["--no-emit-project", "--emit-index-url", "--format", "requirements.txt"]
        uv.run(["export", "--frozen", *content, *options])
        return
    # uv prefers the versions in an existing output file.
    pins = [f"{name}=={version}\n" for name, version in project.versions.items() if _VERSION.fullmatch(version)]
    output.write_text("".join(sorted(pins)), "utf-8")
    with tempfile.TemporaryDirectory(prefix="trainjob-image-") as image:
        _describe_image(project.image, Path(image))
        found = [project.variables["UV_FIND_LINKS"]] if project.variables.get("UV_FIND_LINKS") else []
        uv.run(["pip", "compile", project.file, *options], UV_FIND_LINKS=",".join([*found, image]))


def _fill(lines: list[str], folder: Path, count: int, uv: UvProgram) -> None:
    """Install packages into a folder."""
    uv.find()
    number = f"{count} package{'s' if count > 1 else ''}"
    print(f"code: installing {number} with uv", flush=True)
    started = time.monotonic()
    options = ["--no-deps", "--python", sys.executable, "--target", str(folder)]
    uv.run(["pip", "install", *options, "-r", "-"], "\n".join([*lines, ""]))
    print(f"code: installed {number} in {time.monotonic() - started:.0f} s", flush=True)


def _list_image() -> dict[str, metadata.Distribution]:
    """Return the distributions that the image's Python finds.

    The working directory does not count.
    """
    folders = [folder for folder in sys.path if folder not in ("", str(Path.cwd()))]
    found: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions(path=folders):
        name = each.metadata["Name"]
        if name and each.version:  # a damaged installation has neither
            found.setdefault(normalize(name), each)
    return found


def _describe_image(image: dict[str, metadata.Distribution], folder: Path) -> None:
    """Write a wheel with nothing but metadata for each package of the image.

    uv chooses among the versions that it finds, and an index may lack the image's: builds such as torch 2.8.0+cu126 or
    NVIDIA's 2.8.0a0+5228986c39. These wheels are never installed, because the image has the packages.
    """
    for name, distribution in image.items():
        text = distribution.read_text("METADATA")
        if not text or not _VERSION.fullmatch(distribution.version):
            continue
        stem = f"{name.replace('-', '_')}-{distribution.version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", "".join(_select_metadata(text, image)))
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")


def _select_metadata(text: str, image: Container[str]) -> Iterator[str]:
    """Yield the lines of metadata without the requirements that the image does not have.

    The package works without them there: conda's torch has no packages of CUDA. Extras may be new in the project.
    """
    for line in text.splitlines(keepends=True):
        found = _REQUIRED.match(line)
        if found is None or "extra ==" in line or normalize(found[1]) in image:
            yield line

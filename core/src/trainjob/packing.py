"""Packing of this project's programs into a container's command, so that they need no image of their own."""

from __future__ import annotations

import base64
import functools
import io
import zipfile
import zlib
from collections.abc import Iterator
from importlib import resources
from itertools import accumulate

from trainjob.minify import minify

# The earliest date that a zip file can have. It is fixed, so that the same files give the same text.
_DATE = (1980, 1, 1, 0, 0, 0)
BOOTSTRAP = (
    "import base64,os,runpy,sys,tempfile,zlib;"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob.zip');"
    "open(path,'wb').write(zlib.decompress(base64.b64decode(sys.argv.pop(1))));"
    "sys.path.insert(0,path);"
    "runpy.run_module('trainjob.'+sys.argv.pop(1),run_name='__main__',alter_sys=True)"
)


def program_command(package: str, *dependencies: str) -> list[str]:
    """Return the command that runs a package of `trainjob` as a program.

    The caller appends the program's arguments.

    Args:
        package: name below `trainjob` of a package with a `__main__`, such as `programs.fetch`.
        *dependencies: names below `trainjob` of the other modules and packages that it imports.
    """
    return ["python", "-c", BOOTSTRAP, pack_sources(package, *dependencies), package]


@functools.cache
def pack_sources(*names: str) -> str:
    """Return the sources of modules and packages as a compressed zip file, in base64."""
    files = dict(sorted(file for name in names for file in _read_sources(name.split("."))))
    # The whole archive is compressed, because separately compressed files need 40 % more. The length of an item
    # of a command is limited (65 536, Trainer 2.2).
    return base64.b64encode(zlib.compress(create_zip(files), 9)).decode()


def _read_sources(parts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file of a module or package.

    The parent packages get an empty `__init__.py`.
    """
    *parents, path = accumulate(["trainjob", *parts], "{}/{}".format)
    yield from ((f"{package}/__init__.py", "") for package in parents)
    *folders, last = parts
    folder = resources.files("trainjob").joinpath(*folders)
    package = folder.joinpath(last)
    if not package.is_dir():
        yield f"{path}.py", minify(folder.joinpath(f"{last}.py").read_text("utf-8"))
        return
    for file in package.iterdir():
        if file.name.endswith(".py"):
            yield f"{path}/{file.name}", minify(file.read_text("utf-8"))


def create_zip(files: dict[str, str]) -> bytes:
    """Return an uncompressed zip file of these texts, named by their paths.

    The same texts always give the same file.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), text)
    return buffer.getvalue()

"""Commands that run this project's programs: packed into the command itself, or from an image that contains them."""

from __future__ import annotations

import base64
import functools
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate

from trainjob import framework_modules
from trainjob.minify import minify
from trainjob.version import VERSION, VERSION_OPTION

# The earliest date that a zip file can have. It is fixed, so that the same files give the same text.
_DATE = (1980, 1, 1, 0, 0, 0)
_MAX_CODE_BYTES = 4 << 20  # of a text in an object that anybody may have created
_COMMENT = re.compile(r"\w{1,64}(\.\w{1,64}){1,16} [\w.+-]{1,64}", re.ASCII)
_METADATA_FOLDER = "frameworks-0.dist-info"  # where importlib.metadata finds entry points
BOOTSTRAP = (
    "import base64,os,runpy,sys,tempfile,zlib;"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob.zip');"
    "open(path,'wb').write(zlib.decompress(base64.b64decode(sys.argv.pop(1))));"
    "sys.path.insert(0,path);"
    "runpy.run_module(sys.argv.pop(1),run_name='__main__',alter_sys=True)"
)


def program_command(package: str, *dependencies: str, source: str = "packed") -> list[str]:
    """Return the command that runs a package as a program.

    The caller appends the program's arguments.

    Args:
        package: name of a package with a `__main__`, such as `trainjob.programs.fetch`.
        *dependencies: names of the other modules and packages that it imports.
        source: `packed` for a command that contains the code, or `image` for one that runs the code of its image.
    """
    if source == "image":
        return ["python", "-m", package, VERSION_OPTION, VERSION]
    return ["python", "-c", BOOTSTRAP, pack_sources(package, *dependencies, "trainjob.version"), package]


@functools.cache
def pack_sources(*names: str) -> str:
    """Return the sources of modules and packages as a compressed zip file, in base64.

    It also has the entry points of the other packages' frameworks of which it has a module. The comment of the zip file
    has the first name and the version of `trainjob`.
    """
    files = dict(sorted(file for name in names for file in _read_sources(name.split("."))))
    if entry_points := sorted(set(_describe_entry_points(names))):
        files[f"{_METADATA_FOLDER}/METADATA"] = "Metadata-Version: 2.1\nName: frameworks\nVersion: 0\n"
        files[f"{_METADATA_FOLDER}/entry_points.txt"] = "\n".join([f"[{framework_modules.GROUP}]", *entry_points, ""])
    # The whole archive is compressed, because separately compressed files need 40 % more. The length of an item
    # of a command is limited (65 536, Trainer 2.2).
    return base64.b64encode(zlib.compress(create_zip(files, f"{names[0]} {VERSION}"), 9)).decode()


@dataclass(frozen=True)
class PackedCode:
    """Code in a container's command.

    Attributes:
        name: name, and version of `trainjob`, such as `trainjob.programs.fetch 0.1.0`.
        archive: the uncompressed zip file with the sources.
    """

    name: str
    archive: bytes


def read_packed_code(text: str) -> PackedCode | None:
    """Return the code that [pack_sources][] packed into a text; None for any other text."""
    try:
        archive = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _MAX_CODE_BYTES)
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            name = opened.comment.decode()
    except (ValueError, zlib.error, zipfile.BadZipFile):
        return None
    return PackedCode(name, archive) if _COMMENT.fullmatch(name) else None


def _describe_entry_points(names: Iterable[str]) -> Iterator[str]:
    """Yield the entry points of other packages' frameworks of which a module is named."""
    packages = {name.rpartition(".")[0] for name in names if not name.startswith("trainjob.")}
    for entry in framework_modules.list_entry_points() if packages else ():
        if entry.module.rpartition(".")[0] in packages:
            yield f"{entry.name} = {entry.value}"


def _read_sources(parts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file of a module or package.

    The parent packages get an empty `__init__.py`.
    """
    *parents, path = accumulate(parts, "{}/{}".format)
    yield from ((f"{package}/__init__.py", "") for package in parents)
    top, *folders, last = parts
    folder = resources.files(top).joinpath(*folders)
    package = folder.joinpath(last)
    if not package.is_dir():
        yield f"{path}.py", minify(folder.joinpath(f"{last}.py").read_text("utf-8"))
        return
    for file in package.iterdir():
        if file.name.endswith(".py"):
            yield f"{path}/{file.name}", minify(file.read_text("utf-8"))


def create_zip(files: dict[str, str], comment: str = "") -> bytes:
    """Return an uncompressed zip file of these texts, named by their paths.

    The same texts always give the same file.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), text)
        archive.comment = comment.encode()
    return buffer.getvalue()

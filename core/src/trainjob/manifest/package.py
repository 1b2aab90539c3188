"""Our own programs as a container's command, so that their steps need no image of ours."""

from __future__ import annotations

import base64
import functools
import io
import zipfile
import zlib
from importlib import resources

from trainjob.minify import minify

# A zip file's first possible date: the same files give the same text.
_DATE = (1980, 1, 1, 0, 0, 0)
BOOTSTRAP = (
    "import base64,os,runpy,sys,tempfile,zlib;"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob.zip');"
    "open(path,'wb').write(zlib.decompress(base64.b64decode(sys.argv.pop(1))));"
    "sys.path.insert(0,path);"
    "runpy.run_module('trainjob.'+sys.argv.pop(1),run_name='__main__',alter_sys=True)"
)
# Each program's package below trainjob, and the packages that it needs.
_MODULES = {"export": "programs.export", "fetch": "programs.fetch", "resume": "resume"}
_PACKAGES = {
    "export": ("programs", "programs/export", "programs/fetch"),
    "fetch": ("programs", "programs/fetch"),
    "resume": ("resume",),
}


def program_command(program: str) -> list[str]:
    """Return the command that runs a program, `export`, `fetch` or `resume`; its arguments follow."""
    return ["python", "-c", BOOTSTRAP, _packed(program), _MODULES[program]]


@functools.cache
def _packed(program: str) -> str:
    """Return the sources of a program and what they import: a zip file, compressed, in base64."""
    package = resources.files("trainjob")
    files = {"trainjob/__init__.py": "", "trainjob/errors.py": minify(package.joinpath("errors.py").read_text("utf-8"))}
    for name in _PACKAGES[program]:
        for file in sorted(package.joinpath(name).iterdir(), key=lambda item: item.name):
            if file.name.endswith(".py"):
                files[f"trainjob/{name}/{file.name}"] = minify(file.read_text("utf-8"))
    # As a whole: file by file it would be larger by 40 %, and an item of a command has a limit (65 536, Trainer 2.2).
    return base64.b64encode(zlib.compress(pack(files), 9)).decode()


def pack(files: dict[str, str]) -> bytes:
    """Return an uncompressed zip file of these texts by their paths; the same for the same texts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), text)
    return buffer.getvalue()

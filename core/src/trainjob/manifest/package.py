"""Our own programs as a container's command, so that their steps need no image of ours."""

from __future__ import annotations

import base64
import functools
import io
import zipfile
from importlib import resources

# A zip file's first possible date: the same files give the same text.
_DATE = (1980, 1, 1, 0, 0, 0)
BOOTSTRAP = (
    "import base64,os,runpy,sys,tempfile;"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob.zip');"
    "open(path,'wb').write(base64.b64decode(sys.argv.pop(1)));"
    "sys.path.insert(0,path);"
    "runpy.run_module('trainjob.'+sys.argv.pop(1),run_name='__main__',alter_sys=True)"
)
# What a program needs besides itself.
_ROOMS = {"export": ("export", "fetch"), "fetch": ("fetch",), "resume": ("resume",)}


def program_command(program: str) -> list[str]:
    """The command that runs `python -m trainjob.PROGRAM`, `export`, `fetch` or `resume`; its arguments follow."""
    return ["python", "-c", BOOTSTRAP, _packed(program), program]


@functools.cache
def _packed(program: str) -> str:
    """A program's sources and what they import, as a zip in base64; read from this package's own files."""
    package = resources.files("trainjob")
    files = {"trainjob/__init__.py": "", "trainjob/errors.py": package.joinpath("errors.py").read_text("utf-8")}
    for room in _ROOMS[program]:
        for file in sorted(package.joinpath(room).iterdir(), key=lambda item: item.name):
            if file.name.endswith(".py"):
                files[f"trainjob/{room}/{file.name}"] = file.read_text("utf-8")
    return base64.b64encode(pack(files)).decode()


def pack(files: dict[str, str]) -> bytes:
    """A zip file of these texts by their paths; the same for the same texts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()

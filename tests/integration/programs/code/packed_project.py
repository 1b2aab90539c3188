"""Archives of projects, and the packed program that unpacks them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support.uv import find_python
from trainjob.packing import program_command


def create_member(name: str, content: bytes | str = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    for field, value in fields.items():
        setattr(member, field, value)
    data = content.encode() if isinstance(content, str) else content
    member.size = len(data)
    return member, data


def create_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return create_member(name, type=kind, linkname=target)


@dataclass
class Archive:
    path: Path
    sha256: str


def write_archive(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Archive:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    path.write_bytes(gzip.compress(buffer.getvalue(), 1))
    return Archive(path, hashlib.sha256(buffer.getvalue()).hexdigest())


def pack_texts(path: Path, files: Mapping[str, str]) -> Archive:
    return write_archive(path, [create_member(name, text) for name, text in files.items()])


@dataclass
class Pod:
    """A container's environment on this machine.

    Attributes:
        folder: folder for its files; `tmp` in it is the temporary folder, `packages` in it is on PYTHONPATH.
        variables: its environment variables.
        python: the Python of its image.
    """

    folder: Path
    variables: dict[str, str]
    python: str = sys.executable

    @classmethod
    def create(cls, folder: Path) -> Pod:
        (folder / "tmp").mkdir(parents=True)
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        variables = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        return cls(folder, variables)

    def build_command(self, archive: Archive, *words: str) -> list[str]:
        command = [self.python, *program_command("trainjob.programs.code")[1:]]
        return [*command, "--sha256", archive.sha256, "--archive", str(archive.path), *words]

    def run(self, archive: Archive, *words: str) -> subprocess.CompletedProcess[str]:
        ended: subprocess.CompletedProcess[str] = subprocess.run(self.build_command(archive, *words), **self.options)
        return ended

    def start(self, archive: Archive, *words: str) -> subprocess.Popen[str]:
        options = {**self.options, "capture_output": None}
        del options["capture_output"]
        process: subprocess.Popen[str] = subprocess.Popen(
            self.build_command(archive, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )
        return process

    @property
    def options(self) -> dict[str, Any]:
        return {"env": self.variables, "cwd": self.folder, "capture_output": True, "encoding": "utf-8"}

    @property
    def unpacked(self) -> list[Path]:
        """Folders of unpacked projects."""
        return sorted((self.folder / "tmp").glob("trainjob-code-*"))

    def add_program(self, name: str, text: str) -> None:
        program = self.folder / "bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def add_python(self) -> None:
        """Add the program python, as images have it."""
        (self.folder / "bin" / "python").symlink_to(self.python)


def find_pythons() -> list[str]:
    """Return this Python and the oldest other one of this machine that images may have."""
    others = (found for minor in range(8, 15) if (found := find_python(f"3.{minor}")))
    return list(dict.fromkeys([sys.executable, *islice(others, 1)]))

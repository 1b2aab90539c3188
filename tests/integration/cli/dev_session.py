"""A running `trainjob dev`, whose output a test reads line by line, and the project that it runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TRAIN = """
import os, pathlib, sys
import pkg.model
files = sorted(str(each) for each in pathlib.Path().rglob("*") if each.is_file() and "__pycache__" not in each.parts)
print("RUN", pkg.model.NAME, *files, flush=True)
"""
MODEL = "pkg/model.py"


class DevProject:
    """A folder with the project `project` and the request `dev.yaml`."""

    def __init__(self, folder: Path, files: Mapping[str, str | bytes] | None = None, **fields: Any) -> None:
        self.folder, self.file = folder / "project", folder / "dev.yaml"
        self.write("train.py", TRAIN)
        self.write(MODEL, "NAME = 'a'")
        for name, text in (files or {}).items():
            self.write(name, text)
        if not {"module", "script", "command"} & {*fields}:
            fields["command"] = ["python", "train.py"]
        job: dict[str, Any] = {
            name: fields.pop(name) for name in ("workspace", "queue", "watchdog", "tracking") if name in fields
        }
        given: dict[str, object] = {"image": "busybox", "code": "project", "num_nodes": 1, **fields}
        job["trainer"] = {name: value for name, value in given.items() if value is not None}
        self.file.write_text(yaml.safe_dump({"step": "TrainJob", "name": "tune"} | job))

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file of the project in one step, as editors do."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.parent / "partial"
        partial.write_bytes(text if isinstance(text, bytes) else text.encode())
        partial.replace(path)


class DevSession:
    """The lines of a running command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read lines until one has a match of the pattern, and return the match.

        It fails at the end of the output.
        """
        assert self.process.stdout
        for line in iter(self.process.stdout.readline, ""):
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        errors = self.process.stderr.read() if self.process.stderr else ""
        raise AssertionError(f"{pattern!r} is not in the output: {self.lines}, {errors}")

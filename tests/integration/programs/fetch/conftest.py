from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

import pytest

from trainjob_local.demo.hub import HubHandler, HubServer

ROOT = Path(__file__).resolve().parents[4]
PYTHON = ROOT / ".venv" / "initializer" / "bin" / "python"


DATASET = ("README.md", "data/train.parquet", "heldout/test.parquet")
MODEL = ("README.md", "config.json", "model.safetensors", "original/tokenizer.model", "pytorch_model.bin")
EXPECTED_MODEL_FILES = ["README.md", "config.json", "model.safetensors", "original/tokenizer.model"]

StartFetch = Callable[..., "subprocess.Popen[str]"]
RunFetch = Callable[..., "subprocess.CompletedProcess[str]"]


class RecordingHubHandler(HubHandler):
    """A hub handler that records requests, and can interrupt or damage them.

    The hub lists the names in `extra_files` in addition to its files.
    """

    hook: ClassVar[Callable[[str], None]]
    damaged_files: ClassVar[set[str]]
    requests: ClassVar[list[str]]
    ranges: ClassVar[list[tuple[str, int, int]]]
    extra_files: ClassVar[list[str]]
    without_ranges: ClassVar[bool] = False

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        self.requests.append(f"{self.command} {self.path}")
        if self.without_ranges:
            del self.headers["Range"]
        type(self).hook(f"{self.command} {self.path}")
        super().do_GET()

    def send_json(self, value: Any) -> None:
        if isinstance(value, list):  # the files of a repository
            value += [{"type": "file", "path": name, "size": 4, "oid": "0" * 40} for name in self.extra_files]
        super().send_json(value)

    def _send_part(self, path: Path, first: int, end: int) -> None:
        self.ranges.append((path.name, first, end))
        if path.name in self.damaged_files:
            self.damaged_files.discard(path.name)
            self.wfile.write(b"x" * (end - first))
        else:
            super()._send_part(path, first, end)


class RecordingHub(HubServer):
    """The loopback hub with the class of its handler."""

    handler_class: type[RecordingHubHandler]

    def list_sent_files(self) -> list[str]:
        """Return the paths of the files whose content was requested."""
        paths = [line.partition("/resolve/")[2] for line in self.handler_class.requests if line.startswith("GET ")]
        return sorted(path.partition("/")[2] for path in paths if path)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RecordingHub]:
    for repository, files in (
        ("datasets/demo/tickets", DATASET),
        ("models/demo/tiny", MODEL),
        ("models/demo/private", MODEL),
    ):
        for file in files:
            path = tmp_path / "hub" / repository / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{repository} {file}")
    state: dict[str, Any] = {"hook": staticmethod(lambda line: None), "damaged_files": set(), "requests": []}
    state |= {"ranges": [], "extra_files": []}
    handler = type("Handler", (RecordingHubHandler,), state)
    with RecordingHub(tmp_path / "hub", tokens={"demo/private": "hf_right"}, handler=handler) as server:
        server.handler_class = handler
        yield server


@pytest.fixture
def start_fetch(tmp_path: Path) -> StartFetch:
    """Return a function that starts the fetch program with the Trainer's libraries."""

    def start(
        kind: str, uri: str, *options: str, stdout: int | IO[str] = subprocess.PIPE, **env: str
    ) -> subprocess.Popen[str]:
        clean = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        paths = {"PYTHONPATH": str(ROOT / "core" / "src"), "HOME": str(tmp_path)}
        places = ("--kind", kind, "--folder", str(tmp_path / "workspace" / kind))
        return subprocess.Popen(
            [PYTHON, "-m", "trainjob.programs.fetch", *places, *options],
            env={**clean, **paths, "AWS_EC2_METADATA_DISABLED": "true", "STORAGE_URI": uri, **env},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run_fetch(start_fetch: StartFetch) -> RunFetch:
    """Return a function that runs the fetch to its end."""

    def run(kind: str, uri: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = start_fetch(kind, uri, *options, **env)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run

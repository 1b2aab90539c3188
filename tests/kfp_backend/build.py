"""Build the programs of the Kubeflow Pipelines back end: `python tests/kfp_backend/build.py --source CHECKOUT`.

They are built from a checkout of github.com/kubeflow/pipelines, because the Go proxy does not serve this module.
Programs that exist are not built again. The checkout is not changed. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["PROGRAMS", "VERSION", "list_missing_programs", "list_problems", "main", "program_folder"]

VERSION = "2.17.0"
BUILD_ROOT = Path(__file__).resolve().parents[2] / ".cache" / "kfp_backend"
PROGRAMS = {
    "apiserver": "./backend/src/apiserver",
    "persistence-agent": "./backend/src/agent/persistence",
    "driver": "./backend/src/v2/cmd/driver",
    "launcher-v2": "./backend/src/v2/cmd/launcher-v2",
    "scheduledworkflow": "./backend/src/crd/controller/scheduledworkflow",
}
"""The Go package of each program, by the name of the program."""

_LOOPBACK_FILE = "backend/src/crd/controller/scheduledworkflow/main.go"
# The controller has no option for the address of its metrics (2.17), which would listen on all interfaces.
_LOOPBACK_LINE = ('addr := ":" + metricsPort', 'addr := "127.0.0.1:" + metricsPort')

_CHECKOUT = (
    f"KFP_SOURCE must be a checkout of kubeflow/pipelines at tag {VERSION}: run "
    f"`git clone --branch {VERSION} --depth 1 https://github.com/kubeflow/pipelines` "
    "and then `make e2e-kfp KFP_SOURCE=$PWD/pipelines`"
)
_DATABASE = "mariadbd is not installed: run `apt-get install mariadb-server-core`"
_GO = "Go is not installed, and the programs are not built: see https://go.dev/doc/install"
_ROOT = "the containers of the tests are isolated, which needs root: run `sudo make e2e-kfp KFP_SOURCE=...`"
_DISK_FOR_BUILD, _DISK_FOR_RUN = 20, 10
"""GB of free disk: Go's modules and its cache take 10 GB, the programs 0.5 GB; the tests leave logs and models."""
_USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the programs that are missing.

    Returns:
        The exit code: 2 if the checkout or a program of this machine is missing, 1 if a build fails.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="", help=f"checkout of kubeflow/pipelines at tag {VERSION}")
    source = parser.parse_args(arguments).source
    if problems := list_problems(source):
        print("\n".join(problems), file=sys.stderr)
        return _USAGE_ERROR
    folder = program_folder(Path(source))
    if not _list_missing(folder):
        print(f"the back end of Kubeflow Pipelines is built: {folder}")
        return 0
    return _build(Path(source), folder)


def list_problems(source: str) -> list[str]:
    """Return what this machine lacks to run the back end, each with a command to get it."""
    machine = [*([] if os.geteuid() == 0 else [_ROOT]), *([] if find_program("mariadbd") else [_DATABASE])]
    version = Path(source, "VERSION")
    if not source or not version.is_file():
        return [_CHECKOUT, *machine]
    found = version.read_text().strip()
    built = not list_missing_programs(source)
    return [
        *([] if found == VERSION else [f"{source} is version {found} of Kubeflow Pipelines. {_CHECKOUT}"]),
        *machine,
        *([] if built or shutil.which("go") else [_GO]),
        *_list_full_disks(_DISK_FOR_RUN if built else _DISK_FOR_BUILD),
    ]


def list_missing_programs(source: str) -> list[str]:
    """Return a text with the programs that are not built, as a list; an empty list if all are."""
    missing = _list_missing(program_folder(Path(source))) if source else []
    command = "python tests/kfp_backend/build.py --source"
    return [f"{', '.join(missing)} of Kubeflow Pipelines not built: run `{command} {source}`"] if missing else []


def _list_full_disks(gigabytes: int) -> list[str]:
    """Return a text for each folder of the build and the tests whose disk is too full."""
    folders = {Path(tempfile.gettempdir()), BUILD_ROOT.parents[1]}
    free = {folder: shutil.disk_usage(folder).free / 1e9 for folder in folders}
    return [
        f"{folder} has {size:.0f} GB of free disk; {gigabytes} GB are needed"
        for folder, size in free.items()
        if size < gigabytes
    ]


def find_program(name: str) -> str | None:
    """Return the path of a program of this machine, which may be one for administrators."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def program_folder(source: Path) -> Path:
    """Return the folder for the programs of a checkout, named by a digest of its Go files."""
    digest = hashlib.sha256()
    for path in sorted([*source.rglob("*.go"), *source.rglob("go.mod"), *source.rglob("go.sum")]):
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    return BUILD_ROOT / f"{VERSION}-{digest.hexdigest()[:12]}"


def _list_missing(folder: Path) -> list[str]:
    return [name for name in PROGRAMS if not (folder / "bin" / name).exists()]


def _build(source: Path, folder: Path) -> int:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    with _loopback_overlay(source) as overlay:
        for name in _list_missing(folder):
            begin, finished = time.monotonic(), folder / "bin" / name
            partial = finished.with_name(f".{name}")  # an interrupted build leaves no partial program of this name
            command = ["go", "build", "-buildvcs=false", "-overlay", overlay, "-ldflags", "-s -w", "-o", str(partial)]
            print(f"building {name}", end=" ", flush=True)
            if subprocess.run([*command, PROGRAMS[name]], cwd=source).returncode:
                return 1
            partial.replace(finished)
            print(f"{time.monotonic() - begin:.0f} s, {finished.stat().st_size / 1e6:.0f} MB", flush=True)
    return 0


@contextlib.contextmanager
def _loopback_overlay(source: Path) -> Iterator[str]:
    """Yield the file for `go build -overlay`, with which the metrics have a loopback address.

    Go then compiles a changed copy of one source.
    """
    original = (source / _LOOPBACK_FILE).absolute()
    text = original.read_text()
    assert text.count(_LOOPBACK_LINE[0]) == 1, f"{original} has not the line {_LOOPBACK_LINE[0]}"
    with tempfile.TemporaryDirectory() as folder:
        copy, overlay = Path(folder) / original.name, Path(folder) / "overlay.json"
        copy.write_text(text.replace(*_LOOPBACK_LINE))
        overlay.write_text(json.dumps({"Replace": {str(original): str(copy)}}))
        yield str(overlay)


if __name__ == "__main__":
    sys.exit(main())

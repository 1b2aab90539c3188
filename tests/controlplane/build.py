"""Build the programs of the control planes, and kubectl: `python tests/controlplane/build.py --help` lists the options.

Programs that exist are not built again; then the build needs neither Go nor a network. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from programs import (
    ARGO,
    BUILD_ROOT,
    HERE,
    KSERVE,
    KUBECTL,
    KUBERNETES,
    KUEUE,
    SUPERVISOR,
    TRAINERS,
    ProgramSet,
    list_used_folders,
)

_INSTALL = "see https://go.dev/doc/install"


class BuildFailed(Exception):
    """Error for a program that cannot be built; Go's error message is on standard error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the programs that are missing.

    Returns:
        The exit code: 1 if a build fails, or if Go is missing and `--require-go` was given. Without that option a
        missing Go is reported, and the code is 0: the tests that need the programs are skipped.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trainer",
        action="append",
        choices=sorted(TRAINERS),
        help="build this version of Trainer; default: all versions, Argo, Kueue, KServe and kubectl",
    )
    parser.add_argument("--argo", action="store_true", help="with --trainer: also build Argo")
    parser.add_argument("--kueue", action="store_true", help="with --trainer: also build Kueue")
    parser.add_argument("--kserve", action="store_true", help="with --trainer: also render KServe's definitions")
    parser.add_argument("--kubectl", action="store_true", help="build only kubectl, and what other options name")
    parser.add_argument("--require-go", action="store_true", help="fail if Go is missing and a program must be built")
    options = parser.parse_args(arguments)
    wanted = _select(options)
    if not any(programs.list_missing() for programs in wanted):
        print(f"the control plane is built: {BUILD_ROOT}")
        return 0
    if reason := find_go_problem():
        print(f"skipped: {reason}")
        return 1 if options.require_go else 0
    BUILD_ROOT.mkdir(parents=True, exist_ok=True)
    try:
        with _build_lock():
            for programs in wanted:
                _build(programs)
            _remove_old_builds()
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _select(options: argparse.Namespace) -> list[ProgramSet]:
    """Return the programs to build; without options these are all."""
    some = bool(options.trainer or options.kubectl)
    versions = options.trainer or ([] if some else list(TRAINERS))
    planes = [SUPERVISOR, KUBERNETES, *(TRAINERS[version] for version in versions)] if versions else []
    extras = ((ARGO, options.argo), (KUEUE, options.kueue), (KSERVE, options.kserve), (KUBECTL, options.kubectl))
    return [*planes, *(extra for extra, requested in extras if requested or not some)]


def find_go_problem() -> str:
    """Return why Go cannot build the programs; empty if it can."""
    wanted = re.search(r"^go (\S+)", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert wanted, "go.mod has no line `go VERSION`"
    needed = f"Go >= {wanted[1]} is not installed; {_INSTALL}"
    if not shutil.which("go"):
        return needed
    checked = subprocess.run(["go", "env", "GOVERSION"], cwd=HERE, capture_output=True, text=True)
    return f"{needed} ({checked.stderr.strip()})" if checked.returncode else ""


@contextmanager
def _build_lock() -> Iterator[None]:
    """Hold a lock, so that a second build waits until the first has built all programs."""
    with (BUILD_ROOT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build is running; waiting until it ends")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(programs: ProgramSet) -> None:
    folder = programs.folder
    folder.mkdir(exist_ok=True)
    if absent := [name for name in programs.packages if not (folder / name).exists()]:
        with _build_flags(programs) as flags:
            for name in absent:
                _compile(programs, name, flags)
    if programs.list_missing():
        _render(programs)


def _compile(programs: ProgramSet, name: str, flags: Sequence[str]) -> None:
    begin, (module, package) = time.monotonic(), programs.packages[name]
    _say(f"building {name} ({programs.name})", end=" ")
    finished = programs.folder / name
    partial = finished.with_name(f".{name}")  # an interrupted build leaves no partial program under the real name
    _go(
        module,
        "build",
        *flags,
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        _linker_flags(),
        "-o",
        str(partial),
        package,
    )
    partial.replace(finished)
    _say(f"{time.monotonic() - begin:.0f} s, {finished.stat().st_size / 1e6:.0f} MB")


@contextmanager
def _build_flags(programs: ProgramSet) -> Iterator[Sequence[str]]:
    """Yield the flags of `go build`.

    A module that needs a symbolic link is compiled from a copy, because Go's cache must not be changed.
    """
    link = programs.link
    if link is None:
        yield ()
        return
    (where,) = {module for module, _ in programs.packages.values()}
    module = _download(where, link.module)
    with tempfile.TemporaryDirectory(dir=BUILD_ROOT, prefix=".source-") as folder:
        copy = Path(folder) / "module"
        for path in (module, *sorted(module.rglob("*"))):  # not copytree: the cache's folders are read-only
            target = copy / path.relative_to(module)
            target.mkdir() if path.is_dir() else shutil.copyfile(path, target)
        (copy / link.name).symlink_to(link.target)
        modfile = Path(folder) / "go.mod"
        modfile.write_text(f"{(where / 'go.mod').read_text()}\nreplace {link.module} => {copy}\n")
        modfile.with_suffix(".sum").write_bytes((where / "go.sum").read_bytes())
        yield ("-modfile", str(modfile))


def _render(programs: ProgramSet) -> None:
    """Write the modules' manifests, so that a start needs neither Go nor its module cache."""
    flags: list[str] = []
    for flag, (where, module) in programs.manifests.items():
        flags += [f"--{flag}", str(_download(where, module))]
    with tempfile.TemporaryDirectory(dir=BUILD_ROOT, prefix=".rendered-") as out:
        command = [str(SUPERVISOR.folder / "controlplane"), "render", *flags, "--out", out]
        # Standard error is shown only on failure, because kustomize prints warnings about the projects' own files.
        rendered = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if rendered.returncode:
            raise BuildFailed(f"the manifests of {programs.name} could not be rendered:\n{rendered.stderr}")
        for file in sorted(Path(out).iterdir()):  # trainer.json is the last: when it exists, all exist
            file.replace(programs.folder / file.name)


def _download(where: Path, module: str) -> Path:
    """Return the folder of a module in Go's cache, compared with `go.sum` by Go."""
    return Path(json.loads(_go(where, "mod", "download", "-json", module))["Dir"])


def _linker_flags() -> str:
    """Return the linker flags, which omit symbol tables and set Kubernetes' version."""
    found = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", (HERE / "go.mod").read_text())
    assert found, "go.mod names no version of k8s.io/kubernetes"
    values = {"gitVersion": f"v{found[1]}", "gitMajor": found[2], "gitMinor": found[3]}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())])


def _go(module: Path, *arguments: str) -> str:
    ended = subprocess.run(["go", *arguments], cwd=module, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        raise BuildFailed(f"go {' '.join(arguments)} failed in {os.path.relpath(module)}")
    return ended.stdout


def _remove_old_builds() -> None:
    """Remove the folders of earlier versions; a set takes 0.4 GB."""
    for old in set(BUILD_ROOT.glob("*-*")) - list_used_folders():
        shutil.rmtree(old, ignore_errors=True)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())

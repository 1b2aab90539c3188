"""Kill an export at every file access, run it again, and compare the results.

python kill_points.py WORKSPACE DESTINATION [no-swap]

The program prints the number of kills. A child process per point counts the interpreter's audit events and gets SIGKILL
at the n-th event. DESTINATION exists before, as an export of another run, if DESTINATION.before exists.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.export_runs import read_tree
from trainjob.programs.export import Export, export_model

FILE_EVENTS = ("open", "os.", "shutil.", "ctypes.dlsym")


def run_in_child(work: Callable[[], None]) -> int:
    """Run the work in a child process, and return the child's wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except Exception as failure:  # noqa: BLE001 - the parent reports it
            print(repr(failure), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def kill_at(point: int, work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        remaining = point

        def count(event: str, _: object) -> None:
            nonlocal remaining
            remaining -= event.startswith(FILE_EVENTS)
            if remaining < 0 and event != "os.kill":
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()

    return run


def raise_os_error(_: object) -> None:
    """Fail like a system, or a file system such as NFS, that cannot swap two folders."""
    raise OSError


def main(workspace: Path, destination: Path, *, swaps: bool) -> None:
    request = Export(workspace / "output", workspace / "model", str(destination))
    before = destination.with_name(f"{destination.name}.before")

    def export() -> None:
        export_model(request, lambda _: None)

    def reset() -> None:
        for path in destination.parent.glob(f"*{destination.name}*"):
            if path.is_file():
                path.unlink()
            elif path != before:
                shutil.rmtree(path)
        if before.exists():
            shutil.copytree(before, destination)

    reset()
    assert run_in_child(export) == 0
    expected = read_tree(destination)
    earlier = read_tree(before) if before.exists() else {}
    # A reader sees the earlier export or the new one, complete. If folders cannot be swapped, the reader may see
    # neither.
    allowed = [earlier, expected] if swaps else [earlier, expected, {}]
    killed = 0
    while True:
        reset()
        status = run_in_child(kill_at(killed, export))
        assert read_tree(destination) in allowed
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        killed += 1
        assert run_in_child(export) == 0
        assert read_tree(destination) == expected
        assert {path.name for path in destination.parent.iterdir()} <= {destination.name, before.name}
    print(json.dumps({"killed": killed}))


if __name__ == "__main__":
    if sys.argv[3:] == ["no-swap"]:
        ctypes.CDLL = raise_os_error  # type: ignore[assignment,misc]
    main(Path(sys.argv[1]), Path(sys.argv[2]), swaps=sys.argv[3:] != ["no-swap"])

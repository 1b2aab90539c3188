"""Which laptop clusters run on this machine: a file for each, locked by its process for as long as that lives.

The kernel lets go of the lock when the process ends, however it ends. So a file without a lock is a dead cluster's,
and one that is locked names the process that has it now: never another one that got the same id later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

__all__ = ["Registered", "registered", "registration", "stop"]

_STOP_SECONDS = 15.0
_LOOK = 0.1  # seconds between looks whether a process has ended, where the system can't tell by itself


@dataclass(frozen=True)
class Registered:
    """A laptop cluster that runs.

    Attributes:
        pid: its process.
        server: URL of its API server.
        state: its folder.
        kubeconfig: its kubeconfig file.
        temporary: whether the folder goes with the cluster.
        started: RFC 3339 time of its start.
        file: where this is written.
    """

    pid: int
    server: str
    state: str
    kubeconfig: str
    temporary: bool
    started: str
    file: str = ""


@contextlib.contextmanager
def registration(server: str, state: Path, kubeconfig: Path, *, temporary: bool) -> Iterator[None]:
    """Has this process's cluster be found while the block lasts; where nothing can be written, it is not found."""
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    one = Registered(os.getpid(), server, str(state), str(kubeconfig), temporary, started)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, RuntimeError):  # no home
            folder = _folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = folder / f"{uuid.uuid4().hex}.new"
            file = stack.enter_context(new.open("x"))
            stack.callback(new.with_suffix(".json").unlink, missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump(asdict(one), file)
            file.flush()
            new.replace(new.with_suffix(".json"))  # from now on it is looked at, and it is locked already
        yield


def registered() -> list[Registered]:
    """The laptop clusters of this user that run; what dead ones have left is removed."""
    found = []
    with contextlib.suppress(OSError, RuntimeError):
        for path in sorted(_folder().glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError), path.open() as file:
                if _is_held(file):
                    found.append(Registered(**{**json.load(file), "file": str(path)}))
                else:
                    path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: one.started)


def stop(one: Registered) -> bool:
    """Ends a cluster and waits for it, and for its pods.

    Returns:
        False when it had ended already.

    Raises:
        OSError: it belongs to somebody else.
    """
    with contextlib.ExitStack() as stack:
        try:
            process = _handle(one.pid)
            file = stack.enter_context(Path(one.file).open())
        except (ProcessLookupError, FileNotFoundError):
            return False
        if process is not None:
            stack.callback(os.close, process)
        if not _is_held(file):  # the id may be another process's by now
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            _send(one.pid, process, number)
            if _has_ended(file, process):
                break
    return True


def _handle(pid: int) -> int | None:
    """A file descriptor that stands for this process, and never for a later one of its id (Linux); else None."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox that does not allow it
        return None


def _send(pid: int, process: int | None, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process is not None:
            signal.pidfd_send_signal(process, number)
        else:
            os.kill(pid, number)


def _has_ended(file: IO[str], process: int | None) -> bool:
    """Waits for it."""
    if process is not None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(_STOP_SECONDS * 1000))
    deadline = time.monotonic() + _STOP_SECONDS
    while _is_held(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK)
    return True


def _is_held(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainjob" / "clusters"

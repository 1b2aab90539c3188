"""Records of the laptop clusters that run on this machine.

Each cluster has a file, which its process keeps locked. The kernel releases the lock when the process ends, however
it ends. So a file without a lock belongs to a cluster that has ended. A locked file always names the process that
holds the lock, never a later process with the same ID.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from trainjob_local.cache_folder import cache_folder

__all__ = ["ClusterRecord", "list_clusters", "register_cluster", "stop_cluster"]

_LOG = logging.getLogger(__name__)
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1  # seconds between checks whether a process has ended, if the system has no pidfd


@dataclass(frozen=True)
class ClusterRecord:
    """The record of a running laptop cluster.

    Attributes:
        pid: process ID of the cluster.
        server: URL of its API server.
        state: path of its state folder.
        kubeconfig: path of its kubeconfig file.
        temporary: whether the cluster removes the folder when it ends.
        started: RFC 3339 time of its start.
        file: path of the record's file; empty in the file itself.
    """

    pid: int
    server: str
    state: str
    kubeconfig: str
    temporary: bool
    started: str
    file: str = ""


@contextlib.contextmanager
def register_cluster(server: str, state: Path, kubeconfig: Path, *, temporary: bool) -> Iterator[None]:
    """Register the cluster of this process for the duration of the block.

    If no folder for records is writable, the block runs without registration.

    Args:
        server: URL of the API server.
        state: state folder.
        kubeconfig: kubeconfig file.
        temporary: whether the cluster removes the folder when it ends.
    """
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = ClusterRecord(os.getpid(), server, str(state), str(kubeconfig), temporary, started)
    with contextlib.ExitStack() as stack:
        if not any(_write_record(record, folder, stack) for folder in _records_folders(create=True)):
            _LOG.warning("`trainjob local status` will not list this cluster: no folder for its record is writable")
        yield


def _write_record(record: ClusterRecord, folder: Path, stack: contextlib.ExitStack) -> bool:
    """Write and lock the file of a cluster; the stack releases and removes it.

    Returns:
        False if the folder is not writable, else True.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = folder / f"{uuid.uuid4().hex}.new"
        file = stack.enter_context(new.open("x"))
        stack.callback(new.with_suffix(".json").unlink, missing_ok=True)
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(record), file)
        file.flush()
        new.replace(new.with_suffix(".json"))  # `list_clusters` reads it from now on; it is already locked
    except OSError:
        return False
    return True


def list_clusters() -> list[ClusterRecord]:
    """Return the running laptop clusters of this user, oldest first.

    The files of clusters that have ended are removed.
    """
    found = []
    for path in sorted(path for folder in _records_folders() for path in folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError), path.open() as file:
            if _is_locked(file):
                found.append(ClusterRecord(**{**json.load(file), "file": str(path)}))
            else:
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: one.started)


def stop_cluster(record: ClusterRecord) -> bool:
    """Stop a cluster and wait until it has ended, with its pods.

    The cluster gets SIGTERM, and SIGKILL if it has not ended 15 seconds later.

    Returns:
        False if the cluster had already ended, else True.

    Raises:
        OSError: the cluster belongs to another user.
    """
    with contextlib.ExitStack() as stack:
        try:
            process = _open_pidfd(record.pid)
            file = stack.enter_context(Path(record.file).open())
        except (ProcessLookupError, FileNotFoundError):
            return False
        if process is not None:
            stack.callback(os.close, process)
        if not _is_locked(file):  # another process may have this ID by now
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            _send_signal(record.pid, process, number)
            if _wait_ended(file, process):
                break
    return True


def _open_pidfd(pid: int) -> int | None:
    """Return a pidfd of a process, which never refers to a later process with its ID.

    Returns:
        The file descriptor, or None if the system does not support or permit it (it needs Linux).

    Raises:
        ProcessLookupError: the process does not exist.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox that does not allow it
        return None


def _send_signal(pid: int, process: int | None, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process is not None:
            signal.pidfd_send_signal(process, number)
        else:
            os.kill(pid, number)


def _wait_ended(file: IO[str], process: int | None) -> bool:
    """Wait up to 15 seconds for the end of the process; return whether it has ended."""
    if process is not None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(_STOP_SECONDS * 1000))
    deadline = time.monotonic() + _STOP_SECONDS
    while _is_locked(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _records_folders(*, create: bool = False) -> Iterator[Path]:
    """Yield the folders for records; a cluster writes to the first that is writable.

    The last one is for a home folder that is read-only or missing, as in containers. Only its owner can write to it, so
    no other user can add or replace a record there.
    """
    with contextlib.suppress(RuntimeError):  # no home folder
        yield cache_folder() / "clusters"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or Path(tempfile.gettempdir()) / f"trainjob-{os.getuid()}")
    with contextlib.suppress(OSError):
        if create:
            runtime.mkdir(mode=0o700, exist_ok=True)
        facts = runtime.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077:
            yield runtime / "trainjob" / "clusters"

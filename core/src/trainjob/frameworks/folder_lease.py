"""Lease of an output folder: two trainings never write to the same folder at once.

The holder renews the file `trainjob_lease.json` every 5 s by incrementing its `beat`. A lease expires if the file does
not change for the seconds that it names. Others count their reads without a change. Clocks of different machines
therefore do not matter, and no lease expires while the file system hangs for everyone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import re
import secrets
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trainjob.errors import OutputInUse
from trainjob.job_variables import JOB_VARIABLE, NAME_VARIABLE, POD_VARIABLE, RUN_VARIABLE

__all__ = ["LEASE_FILE", "LEASE_VARIABLE", "Lease", "continue_lease", "hand_over_lease", "take_lease"]

LEASE_FILE = "trainjob_lease.json"
"""File in the output folder that names the training that writes to this folder now."""
LEASE_VARIABLE = "TRAINJOB_LEASE"
"""Environment variable that hands the lease of a program over to the program that replaces it (exec)."""

_START_SECONDS = 300.0  # for the import of torch from a slow disk, before the lease is renewed
_EXPIRES_AFTER = 60.0  # seconds, as all times
_RENEW_EVERY = 5.0
_READ_EVERY = 1.0
_CHECK_AFTER = 0.2  # two processes that replace the same file do so within less time
_MAX_WAIT = 600.0
_ENDED_AGE = 3600.0  # the clocks of two machines differ by less


@dataclass(frozen=True)
class _Holder:
    """Content of a lease file, and its age; the names in a damaged file are empty."""

    content: bytes
    age: float
    nonce: str = ""
    run: str = ""
    trainjob: str = ""
    job: str = ""
    pod: str = ""
    workflow_run: str = ""
    lapses_after: float = _EXPIRES_AFTER

    def __str__(self) -> str:
        name = f"TrainJob {self.trainjob}" if self.trainjob else "another training"
        return "".join(filter(str.isprintable, f"{name} of {self.workflow_run}" if self.workflow_run else name))


class Lease:
    """Lease of one folder by this process; [take_lease][] and [continue_lease][] return it."""

    def __init__(self, folder: Path, run: str, nonce: str, lapses_after: float) -> None:
        self._folder, self._path = folder, folder / LEASE_FILE
        self._new = self._path.with_name(f"{LEASE_FILE}.{nonce}.new")
        self._run, self._nonce, self._lapses_after = run, nonce, lapses_after
        self._trainjob, self._pod = os.environ.get(NAME_VARIABLE, ""), os.environ.get(POD_VARIABLE, "")
        self._job = os.environ.get(JOB_VARIABLE, "")
        self._replaced_nonce, self._beat = "", 0
        self._pid, self._thread, self._released = os.getpid(), threading.Thread(), threading.Event()

    def acquire(self) -> None:
        """Create the file, or replace it when its holder has ended; see [take_lease][]."""
        self._folder.mkdir(parents=True, exist_ok=True)
        while not self._create():
            holder = self._wait_until_free()
            if holder and self._replace(holder):
                break
        time.sleep(_CHECK_AFTER)
        self.check()

    def check(self) -> None:
        """Raise an error if another process has the lease; else release it when this process ends."""
        if other := self._find_other():
            raise self._in_use(other)
        atexit.register(self.release)

    def is_held(self) -> bool:
        """Return whether no other process has taken the lease.

        Raises:
            OSError: the file cannot be read.
        """
        return self._find_other() is None

    def keep(self) -> Lease:
        """Start a thread that renews the lease, and return the lease.

        The thread ends this process with exit code 1 if another process takes the lease.
        """
        self._thread = threading.Thread(target=self._renew_until_released, name="trainjob-lease", daemon=True)
        self._thread.start()
        return self

    def hand_over(self) -> None:
        """Set the environment variable that [continue_lease][] reads after an exec."""
        os.environ[LEASE_VARIABLE] = f"{self._nonce}:{self._run}"

    def release(self) -> None:
        """Stop the renewals, and remove the file unless another process has taken the lease."""
        atexit.unregister(self.release)
        if os.getpid() != self._pid:  # a child after a fork inherits the exit handlers
            return
        self._released.set()
        if self._thread.ident:
            self._thread.join()
        with contextlib.suppress(OSError):
            self._new.unlink(missing_ok=True)
            if (found := _read(self._path)) and found.nonce == self._nonce:
                self._path.unlink()

    def _create(self) -> bool:
        try:
            with self._path.open("xb") as file:
                file.write(self._content())
        except FileExistsError:
            return False
        return True

    def _wait_until_free(self) -> _Holder | None:
        """Return the holder whose file may be replaced; None if the file does not exist."""
        last, unchanged, waited = None, 0.0, 0.0
        while (found := _read(self._path)) and found.age <= _ENDED_AGE and not self._replaces_at_once(found):
            is_own = self._is_same_trainjob(found)
            if last is None:
                wait = f"waiting until it ends, at most {_MAX_WAIT:g} s" if is_own else "checking whether it still runs"
                print(f"{found} has the lease of {self._folder}: {wait}", flush=True)
            elif found.content != last.content:
                unchanged = 0.0
                if not is_own:
                    raise self._in_use(found)
            if unchanged >= found.lapses_after or waited >= _MAX_WAIT:
                break
            last = found
            time.sleep(_READ_EVERY)
            unchanged, waited = unchanged + _READ_EVERY, waited + _READ_EVERY
        return found

    def _replaces_at_once(self, found: _Holder) -> bool:
        if self._is_same_trainjob(found):  # torchrun or the kubelet has restarted the process
            return bool(found.pod) and found.pod == self._pod
        # An attempt starts after the pods of the previous one have ended. A process on a lost node ends by itself.
        return bool(found.run) and found.run == self._run

    def _is_same_trainjob(self, found: _Holder) -> bool:
        # A TrainJob that was deleted and created again has the same name.
        theirs = (found.run, found.job or found.trainjob)
        return any(theirs) and theirs == (self._run, self._job or self._trainjob)

    def _replace(self, found: _Holder) -> bool:
        """Replace a holder's file; return False if the file has changed in the meantime."""
        self._new.write_bytes(self._content())
        now = _read(self._path)  # last, because another process may replace the file, too
        if now is None or now.content != found.content:
            self._new.unlink()
            return False
        self._new.replace(self._path)
        self._replaced_nonce = found.nonce
        if found.nonce:
            with contextlib.suppress(OSError):  # the file exists if the holder was killed during a renewal
                self._path.with_name(f"{LEASE_FILE}.{found.nonce}.new").unlink()
        return True

    def _find_other(self) -> _Holder | None:
        # The replaced file reappears if its holder read its own nonce just before the replacement, and wrote just after
        # it. The next renewal overwrites the file, and that holder then ends.
        found = _read(self._path)
        return found if found and found.nonce not in ("", self._nonce, self._replaced_nonce) else None

    def _renew_until_released(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # such as a full disk, until the next renewal
                self._renew()
            if self._released.wait(_RENEW_EVERY):
                return

    def _renew(self) -> None:
        if other := self._find_other():
            reason = f"{other} now has the lease of {self._folder}"
            try:
                text = f"{reason}: this process ends, because two trainings would mix their files"
                print(text, file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        self._beat += 1
        self._new.write_bytes(self._content())
        self._new.replace(self._path)

    def _content(self) -> bytes:
        values = {"nonce": self._nonce, "run": self._run, "trainjob": self._trainjob}
        values |= {"job": self._job, "pod": self._pod}
        values["workflow_run"] = os.environ.get(RUN_VARIABLE, "")
        return json.dumps({**values, "beat": self._beat, "lapses_after": self._lapses_after}).encode()

    def _in_use(self, found: _Holder) -> OutputInUse:
        hint = "give each training its own output_path, or start it after the other has ended"
        return OutputInUse(f"{self._folder} is used by {found}, which is still training", hint=hint)


def take_lease(folder: Path, run: str, *, lapses_after: float = _EXPIRES_AFTER) -> Lease:
    """Return the lease of a folder, if necessary after a wait for the end of its holder.

    Call [Lease.keep][] or [Lease.hand_over][] next. A process that is not killed releases the lease at its end.

    Args:
        folder: output folder of a training; it is created.
        run: text that identifies the run of a step, the same in all its attempts, and in no other training's; empty if
            it is unknown.
        lapses_after: seconds without a renewal after which other processes may take the lease.

    Raises:
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be read or written.
    """
    lease = Lease(folder, run, secrets.token_hex(8), lapses_after)
    lease.acquire()
    return lease


def hand_over_lease(folder: Path, run: str) -> None:
    """Take the lease of a folder on the first node, for the program that replaces this one.

    The process of rank 0 continues it.

    Args:
        folder: output folder of the training.
        run: see [take_lease][].

    Raises:
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be read or written.
    """
    if os.environ.get("JOB_COMPLETION_INDEX", "0") == "0":  # the node of rank 0 (Trainer 2.3, plugins/torch)
        take_lease(folder, run, lapses_after=_START_SECONDS).keep().hand_over()


def continue_lease(folder: Path, *, lapses_after: float = _EXPIRES_AFTER) -> Lease | None:
    """Keep the lease of the program that this one has replaced; return None without one.

    Args:
        folder: the folder of the lease.
        lapses_after: seconds without a renewal after which other processes may take the lease.

    Raises:
        OutputInUse: another training uses the folder.
        OSError: the file cannot be read.
    """
    nonce, _, run = os.environ.pop(LEASE_VARIABLE, "").partition(":")
    if not nonce:
        return None
    lease = Lease(folder, run, nonce, lapses_after)
    lease.check()
    return lease.keep()


def _read(path: Path) -> _Holder | None:
    """Return the content of a lease file; None if it does not exist."""
    for attempt in range(3):
        try:
            with path.open("rb") as file:  # anew each time, because NFS checks for changes when a file is opened
                return _parse(file.read(), time.time() - os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == 2:  # NFS, if the file is replaced while it is read
                raise
    return None


def _parse(content: bytes, age: float) -> _Holder:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not re.fullmatch("[0-9a-f]{16}", str(values.get("nonce"))):
        return _Holder(content, age)
    names = {name: str(values.get(name, "")) for name in ("nonce", "run", "trainjob", "job", "pod", "workflow_run")}
    seconds = values.get("lapses_after")
    expires_after = min(_MAX_WAIT, seconds) if isinstance(seconds, int | float) else _EXPIRES_AFTER
    return _Holder(content, age, lapses_after=expires_after, **names)

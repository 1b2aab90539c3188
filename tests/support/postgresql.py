"""A PostgreSQL server of a test, from the programs of Debian's package postgresql."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

MISSING = "PostgreSQL is missing: run `apt-get install postgresql` (Debian)"
"""Reason for which a test is skipped without PostgreSQL's programs."""
_START_SECONDS = 60
# The data of a test need not survive a crash of the machine.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's newest programs; None without PostgreSQL.

    Debian does not install `initdb` and `postgres` in a folder of `PATH`.
    """
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    in_path = shutil.which("initdb")
    candidates = [*reversed(folders), *([Path(in_path).parent] if in_path else [])]
    return next((folder for folder in candidates if (folder / "postgres").exists()), None)


def _find_user() -> pwd.struct_passwd | None:
    """Return the user of the server; None for the present user.

    PostgreSQL refuses to run as root.
    """
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


class PostgreSQL:
    """PostgreSQL server with an empty database, used as a context manager.

    The server listens on a loopback port, accepts connections without a password, and deletes its data on exit. Without
    PostgreSQL's programs, the test is skipped.

    Attributes:
        url: address of the database for SQLAlchemy.
    """

    def __init__(self) -> None:
        programs = find_programs()
        if programs is None:
            pytest.skip(MISSING)
        self._programs, self._user = programs, _find_user()
        self._stack = contextlib.ExitStack()
        self._server: subprocess.Popen[bytes] | None = None
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        self.url = f"postgresql+psycopg2://postgres@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> PostgreSQL:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="trainjob-postgresql-")))
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        initdb = ("initdb", "-D", "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        try:
            done = self._popen(*initdb, output=self._folder / "initdb.log").wait(_START_SECONDS)
            assert done == 0, (self._folder / "initdb.log").read_text()
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = [word for setting in _FAST for word in ("-c", setting)]
        address = ("-h", "127.0.0.1", "-p", str(self._port), "-c", "unix_socket_directories=")
        log = self._folder / "postgresql.log"
        self._server = self._popen("postgres", "-D", "data", *address, *settings, output=log)
        deadline = time.monotonic() + _START_SECONDS
        probe = ("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port))
        while self._popen(*probe, output=self._folder / "pg_isready.log").wait(_START_SECONDS) != 0:
            assert self._server.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the server at once: its clients lose their connections, as after a crash."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)  # "immediate shutdown"
            self._server.wait(_START_SECONDS)
            self._server = None

    def _popen(self, program: str, *arguments: str, output: Path) -> subprocess.Popen[bytes]:
        user = self._user
        with output.open("ab") as out:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=None if user is None else [],
            )

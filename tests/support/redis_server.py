"""A redis server of a test, from the program of Debian's package redis-server."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_START_SECONDS = 30


class RedisServer:
    """Redis server without stored data, used as a context manager.

    The server listens on a loopback port. Without the program `redis-server`, the test is skipped.

    Attributes:
        url: address of the server's first database.
    """

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is missing: run `apt-get install redis-server` (Debian)")
        self._program = program
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> RedisServer:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainjob-redis-")))
            self._log = folder / "redis.log"
            arguments = ("--bind", "127.0.0.1", "--port", str(self._port), "--save", "", "--appendonly", "no")
            with self._log.open("wb") as out:
                self._server = subprocess.Popen(
                    [self._program, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            stack.callback(self._stop)
            self._wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            assert self._server.poll() is None and time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5) as client:
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        return False

    def _stop(self) -> None:
        self._server.kill()
        self._server.wait()

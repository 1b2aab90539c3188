"""A user of this machine who has nothing but Python: an empty home folder and a clean environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH = "/usr/local/bin:/usr/bin:/bin"
_USER_ID = 12345  # not in /etc/passwd, as in many containers
# What a machine needs to reach its package index, and uv's cache, without which each test downloads gigabytes.
_INHERITED = ("PIP_CERT", "SSL_CERT_FILE", "UV_CACHE_DIR")


class Newcomer:
    """A user with a home folder, a folder for temporary files and a folder with wheels.

    If the tests run as root, the user is another one. The paths of the first two folders contain spaces.

    Attributes:
        home: the home folder.
        temporary: the folder for temporary files.
        mark: text in the environment of all processes of the user.
        environment: all environment variables of the user.
        user: command that runs the rest of its arguments as the user; empty if the tests do not run as root.
    """

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.home, self.temporary = folder / "new home", folder / "other tmp"
        self.mark = uuid.uuid4().hex
        self._read_only, self._wheels = folder / "read-only", folder / "wheels"
        for path in (self.home, self.temporary, self._read_only):
            path.mkdir()
        shutil.copytree(wheels, self._wheels, ignore=shutil.ignore_patterns("*.tar.gz"))
        self.environment = {
            "PATH": _PATH,
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PIP_FIND_LINKS": str(self._wheels),
            "NEWCOMER": self.mark,
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        }
        self.user: tuple[str, ...] = ()
        if os.getuid() == 0:
            self.user = ("setpriv", f"--reuid={_USER_ID}", f"--regid={_USER_ID}", "--clear-groups")
            for path in (self.home, self.temporary):
                self.give(path)
        folder.chmod(0o755)
        self._read_only.chmod(0o555)

    def give(self, path: Path) -> None:
        """Make the user the owner of a file, or of a folder with all files in it."""
        if self.user:
            subprocess.run(["chown", "-R", f"{_USER_ID}:{_USER_ID}", path], check=True)

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """Start a program in a folder that is not writable, with its output in a pipe."""
        words = [*self.user, *map(str, command)]
        output = subprocess.PIPE
        return subprocess.Popen(
            words, env=self.environment, cwd=self._read_only, stdout=output, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *command: str | Path) -> str:
        """Run a program to its end, and return its output."""
        with self.start(*command) as process:
            output, _ = process.communicate()
        assert process.returncode == 0, output
        return output


@contextmanager
def create_newcomer(wheels: Path) -> Iterator[Newcomer]:
    """Yield a user with copies of these wheels, and delete all files of the user at the end."""
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))  # the folders of pytest belong to the tests' user alone
    try:
        yield Newcomer(folder, wheels)
    finally:
        shutil.rmtree(folder)

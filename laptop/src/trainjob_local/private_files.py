"""Files and folders that only their owner can read."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from trainjob.errors import ClusterError

__all__ = ["make_private_folder", "read_or_create", "write_private"]


def make_private_folder(path: Path) -> None:
    """Create a folder that only this user can access, or restrict an existing one.

    Raises:
        ClusterError: the folder belongs to another user, or other users can write to it. They may have put files there,
            such as a token that they know.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = path.stat()
    for owner in {facts.st_uid, path.lstat().st_uid} - {os.getuid()}:  # lstat: of a symbolic link to the folder
        raise ClusterError(
            f"the state folder {path} belongs to {_user_name(owner)}, not to {_user_name(os.getuid())}",
            hint="name another folder with --state; it is created if it does not exist",
        )
    if facts.st_mode & 0o022:
        raise ClusterError(
            f"other users can write to the state folder {path} (mode {stat.S_IMODE(facts.st_mode):04o}), "
            "so they may have put files into it",
            hint=f"name another folder with --state, or if you trust its files: chmod 700 {path}",
        )
    path.chmod(0o700)


def _user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:  # such as in a container with an arbitrary user ID
        return f"user ID {uid}"


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """Return the content of a file; if it does not exist, write it first.

    Args:
        path: the file in the state folder, which an earlier cluster may have written.
        make: function that returns the content of a new file.
    """
    if not path.exists():
        write_private(path, make())
    return path.read_text()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, with an atomic rename.

    No reader sees an incomplete file.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)

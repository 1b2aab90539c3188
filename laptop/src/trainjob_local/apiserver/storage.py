"""Keeps objects, the resourceVersion and tokens in SQLite: in a file that survives `kill -9`, or in memory only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainjob.errors import ClusterError

__all__ = ["Storage", "StoredToken"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT, namespace TEXT, name TEXT, version INTEGER, text BLOB, PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER);
INSERT OR IGNORE INTO counter VALUES (1, 0);
CREATE TABLE IF NOT EXISTS tokens (
    digest TEXT PRIMARY KEY, namespace TEXT, account TEXT, uid TEXT, pod TEXT, pod_uid TEXT, audiences TEXT, expires
    REAL
) WITHOUT ROWID;
"""


class StoredToken(NamedTuple):
    """A service account's token; the token itself is not kept, only its SHA-256.

    Attributes:
        digest: hexadecimal SHA-256 of the token.
        namespace: of the service account.
        account: name of the service account.
        uid: uid of the service account.
        pod: name of the pod it is bound to, or empty.
        pod_uid: uid of that pod, or empty.
        audiences: for whom it is good, separated by spaces.
        expires: seconds since the epoch.
    """

    digest: str
    namespace: str
    account: str
    uid: str
    pod: str
    pod_uid: str
    audiences: str
    expires: float


class Storage:
    """One SQLite database; not thread-safe, its owner holds a lock.

    Writes go through the operating system's cache at once, so they survive the death of the process; they are synced
    to disk at checkpoints only, so the last ones may be lost when the machine itself dies.

    Args:
        folder: where the database lies; made when missing, readable by its owner only. None keeps everything in memory.

    Raises:
        ClusterError: the folder is used by another server, or the file is no database of ours.
    """

    def __init__(self, folder: Path | None) -> None:
        path = ":memory:"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "objects.sqlite3"
            file.touch(mode=0o600)  # Secrets are in it
            path = str(file)
        self._db = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._db.close()
            raise ClusterError(
                f"can't use {path}: {error}", hint="is another laptop cluster running with this state folder?"
            ) from error

    def version(self) -> int:
        """Reads the resourceVersion of the last write."""
        row: tuple[int] = self._db.execute("SELECT version FROM counter").fetchone()
        return row[0]

    def load(self) -> Iterator[tuple[str, str, str, int, bytes]]:
        """Reads every object: resource, namespace, name, version and JSON text."""
        yield from self._db.execute("SELECT resource, namespace, name, version, text FROM objects")

    def put(self, resource: str, namespace: str, name: str, version: int, text: bytes) -> None:
        """Writes an object and the counter in one transaction."""
        self._db.execute("BEGIN")
        self._db.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (resource, namespace, name, version, text)
        )
        self._commit(version)

    def remove(self, resource: str, namespace: str, name: str, version: int) -> None:
        """Removes an object and writes the counter in one transaction."""
        self._db.execute("BEGIN")
        self._db.execute(
            "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (resource, namespace, name)
        )
        self._commit(version)

    def _commit(self, version: int) -> None:
        self._db.execute("UPDATE counter SET version = ?", (version,))
        self._db.execute("COMMIT")

    def put_token(self, token: StoredToken, now: float) -> None:
        """Writes a token and forgets those that have expired."""
        self._db.execute("DELETE FROM tokens WHERE expires < ?", (now,))
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", token)

    def token(self, digest: str) -> StoredToken | None:
        """Finds a token by the SHA-256 of its text."""
        row = self._db.execute("SELECT * FROM tokens WHERE digest = ?", (digest,)).fetchone()
        return StoredToken(*row) if row else None

    def close(self) -> None:
        """Closes the database; all writes are in it."""
        self._db.close()

"""Storage of objects, the resourceVersion and tokens in SQLite.

The database is a file that survives `kill -9`, or is in memory only.
"""

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
    """The stored data of a service account token: its SHA-256 instead of the token itself.

    Attributes:
        digest: hexadecimal SHA-256 of the token.
        namespace: namespace of the service account.
        account: name of the service account.
        uid: uid of the service account.
        pod: name of the pod that the token is bound to, or empty.
        pod_uid: uid of that pod, or empty.
        audiences: audiences of the token, separated by spaces.
        expires: time of expiry, seconds since the epoch.
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
    """One SQLite database. It is not thread-safe: its owner holds a lock.

    Every write reaches the operating system's cache at once, so it survives the end of the process. SQLite syncs the
    writes to disk at checkpoints only, so the last writes may be lost if the machine crashes.

    Args:
        folder: folder of the database; created if missing. Only the owner can read the database. None keeps everything
            in memory.

    Raises:
        ClusterError: another server uses the folder, or the file is not a database of this program.
    """

    def __init__(self, folder: Path | None) -> None:
        path = ":memory:"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "objects.sqlite3"
            file.touch(mode=0o600)  # it contains Secrets
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
                f"can't use {path}: {error}",
                hint="check whether another laptop cluster uses this state folder; stop it, or choose another folder",
            ) from error

    def get_version(self) -> int:
        """Return the resourceVersion of the last write."""
        row: tuple[int] = self._db.execute("SELECT version FROM counter").fetchone()
        return row[0]

    def load_objects(self) -> Iterator[tuple[str, str, str, int, bytes]]:
        """Yield every object as a tuple of resource, namespace, name, version and JSON text."""
        yield from self._db.execute("SELECT resource, namespace, name, version, text FROM objects")

    def put(self, resource: str, namespace: str, name: str, version: int, text: bytes) -> None:
        """Write an object and the counter in one transaction."""
        self._db.execute("BEGIN")
        self._db.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (resource, namespace, name, version, text)
        )
        self._commit(version)

    def remove(self, resource: str, namespace: str, name: str, version: int) -> None:
        """Remove an object and write the counter in one transaction."""
        self._db.execute("BEGIN")
        self._db.execute(
            "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (resource, namespace, name)
        )
        self._commit(version)

    def _commit(self, version: int) -> None:
        self._db.execute("UPDATE counter SET version = ?", (version,))
        self._db.execute("COMMIT")

    def put_token(self, token: StoredToken, now: float) -> None:
        """Write a token and delete the expired ones.

        Args:
            token: the token to store.
            now: current time, seconds since the epoch.
        """
        self._db.execute("DELETE FROM tokens WHERE expires < ?", (now,))
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", token)

    def get_token(self, digest: str) -> StoredToken | None:
        """Return the token with this SHA-256, or None if it does not exist."""
        row = self._db.execute("SELECT * FROM tokens WHERE digest = ?", (digest,)).fetchone()
        return StoredToken(*row) if row else None

    def close(self) -> None:
        """Close the database, which contains all writes."""
        self._db.close()

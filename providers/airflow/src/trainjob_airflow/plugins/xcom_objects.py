"""XComs in an object store, as Airflow's `XComObjectStorageBackend` writes them, read as text.

The backend itself is not used: it creates the classes that a value names (common.io 1.11, `XComDecoder`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from trainjob.threads import BoundedExecutor
from trainjob_airflow.version_compat import conf

_BACKEND = "airflow.providers.common.io.xcom.backend.XComObjectStorageBackend"
_MAX_OBJECT_BYTES = 256 * 1024
_MAX_CACHED_CHARACTERS = 32 * 1024 * 1024
_MAX_WAIT_SECONDS = 2.0
_RETRY_SECONDS = 30.0
_MAX_THREADS = 8
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class XComObject:
    """An object with the value of an XCom.

    Attributes:
        base: the option `[common.io] xcom_objectstorage_path`.
        path: path of the object below `base`.
        written_at: time of the XCom in Airflow's database; a newer value of an XCom may have the same path.
    """

    base: str
    path: str
    written_at: str


def find_object(reference: str, instance: tuple[str, str, str, int], written_at: str) -> XComObject | None:
    """Return the object that Airflow's database names as the value of an XCom.

    A task can write any text as the value, so only objects of the task itself are accepted: the backend writes them to
    `DAG/RUN/TASK/` below the configured path.

    Returns:
        None if the backend is not configured, or if the text is no path of an object of the task instance.
    """
    base = conf.get("common.io", "xcom_objectstorage_path", fallback="") or ""
    if conf.get("core", "xcom_backend", fallback="") != _BACKEND or not base:
        return None
    from airflow.sdk import ObjectStoragePath

    folder = f"{str(ObjectStoragePath(base)).rstrip('/')}/"
    path = reference.removeprefix(folder)
    parts = path.split("/")
    is_own = path != reference and path.startswith("/".join([*instance[:3], ""]))
    if not is_own or "/" in path.removeprefix("/".join([*instance[:3], ""])) or {"", ".", ".."} & set(parts):
        return None
    return XComObject(base, path, written_at)


def describe_reference(text: str) -> str:
    """Return the address that an XCom backend has stored, without credentials and query.

    The result is empty if the text is no address.
    """
    try:
        address = urlsplit(text)
    except ValueError:
        return ""
    if not address.scheme or not (address.netloc or address.path.startswith("/")):
        return ""
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"[:300]


def _read_object(each: XComObject) -> str:
    """Return the text of an object.

    Raises:
        ValueError: the object has more than 256 KiB, or is no UTF-8.
        Exception: the object store's error.
    """
    from airflow.sdk import ObjectStoragePath

    with (ObjectStoragePath(each.base) / each.path).open(mode="rb", compression="infer") as file:
        content = file.read(_MAX_OBJECT_BYTES + 1)
    if len(content) > _MAX_OBJECT_BYTES:
        raise ValueError(f"it has more than {_MAX_OBJECT_BYTES // 1024} KiB")
    return bytes(content).decode()


@dataclass
class _Entry:
    text: str | None
    expires_at: float


@dataclass
class XComObjects:
    """Texts of objects, read by at most 8 threads and kept in at most 32 million characters.

    Attributes:
        read_object: returns the text of an object, or raises an error.
        clock: returns monotonic seconds.
    """

    read_object: Callable[[XComObject], str] = _read_object
    clock: Callable[[], float] = time.monotonic
    _known: dict[XComObject, _Entry] = field(default_factory=dict)
    _running: set[XComObject] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _executor: BoundedExecutor = field(default_factory=lambda: BoundedExecutor("xcom-objects", _MAX_THREADS))

    def read(self, wanted: Collection[XComObject]) -> Mapping[XComObject, str]:
        """Return the texts that can be read within 2 s. The others follow in a later call.

        An object that cannot be read is left out, and is read again after 30 s.
        """
        deadline = self.clock() + _MAX_WAIT_SECONDS
        with self._changed:
            for each in wanted:
                entry = self._known.pop(each, None)
                if entry is not None and self.clock() < entry.expires_at:
                    self._known[each] = entry  # moved to the end, so that the first entry has the oldest request
                elif each not in self._running:
                    self._running.add(each)
                    self._executor.submit(partial(self._run, each))
            while self._running & set(wanted) and (left := deadline - self.clock()) > 0:
                self._changed.wait(left)
            found = {each: self._known[each].text for each in wanted if each in self._known}
        return {each: text for each, text in found.items() if text is not None}

    def _run(self, each: XComObject) -> None:
        entry = _Entry(None, self.clock() + _RETRY_SECONDS)
        try:
            entry = _Entry(self.read_object(each), float("inf"))
        except Exception as error:  # noqa: BLE001 - the page says that the value cannot be read
            _LOGGER.warning("The XCom in %s of %s can't be read: %s", each.path, describe_reference(each.base), error)
        finally:
            with self._changed:
                self._known[each] = entry
                self._running.discard(each)
                self._evict()
                self._changed.notify_all()

    def _evict(self) -> None:
        size = sum(len(entry.text or "") + 1000 for entry in self._known.values())
        while size > _MAX_CACHED_CHARACTERS:
            size -= len(self._known.pop(next(iter(self._known))).text or "") + 1000

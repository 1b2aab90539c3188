"""Audit of TrainJobs: every stored state of every TrainJob, in the API server's order."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.polling import wait_until
from trainjob.lifecycle import RunKey

_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
_RUN_KEY_LABEL = "trainjob.dev/run-key"


@dataclass(frozen=True)
class ObservedChange:
    """One change of one TrainJob, as the API server sent it.

    Attributes:
        change: ADDED, MODIFIED or DELETED.
        uid: the TrainJob's UID.
        end: `Complete` or `Failed`, from its conditions; empty while it runs.
    """

    change: str
    uid: str
    end: str


class AuditLog:
    """A watch of all TrainJobs of a cluster, independent of the product; a context manager."""

    def __init__(self, laptop: Any) -> None:
        self._address, self._headers = urlsplit(laptop.server).netloc, {"Authorization": f"Bearer {laptop.token}"}
        self._tls = ssl.create_default_context(cafile=laptop.ca_file)
        self._lock = threading.Lock()
        self._changes: dict[str, list[ObservedChange]] = {}

    def __enter__(self) -> AuditLog:
        version = self._list("")["metadata"]["resourceVersion"]
        query = f"?watch=true&timeoutSeconds=86400&resourceVersion={version}"
        self._connection = http.client.HTTPSConnection(self._address, context=self._tls)
        self._connection.request("GET", _TRAINJOBS + query, headers=self._headers)
        self._stream = self._connection.getresponse()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(60)
        self._connection.close()

    def changes_of(self, key: RunKey) -> list[ObservedChange]:
        """Return the changes of a run key's TrainJobs."""
        with self._lock:
            return list(self._changes.get(key.digest, ()))

    def max_active(self, key: RunKey) -> int:
        """Return the maximum number of unfinished TrainJobs of a run key at any time."""
        return max((len(active) for active in self._active_over_time(key)), default=0)

    def active_uids(self, key: RunKey) -> set[str]:
        """Return the UIDs of the unfinished TrainJobs after the last change."""
        return ([set(), *self._active_over_time(key)])[-1]

    def created_uids(self, key: RunKey) -> list[str]:
        """Return the UIDs of all TrainJobs of a run key, in the order of their creation."""
        return list(dict.fromkeys(seen.uid for seen in self.changes_of(key)))

    def end_states(self, key: RunKey) -> dict[str, str]:
        """Return how each TrainJob ended: `Complete`, `Failed`, or `deleted` while it ran.

        TrainJobs that still run are left out.
        """
        found: dict[str, str] = {}
        for seen in self.changes_of(key):
            if seen.end or seen.change == "DELETED":
                found.setdefault(seen.uid, seen.end or "deleted")
        return found

    def wait_until_current(self, key: RunKey) -> None:
        """Wait until the log contains all changes of a run key's TrainJobs until now."""
        query = f"?labelSelector={_RUN_KEY_LABEL}%3D{key.digest}"

        def same() -> bool:
            stored = {job["metadata"]["uid"]: _end_state(job) for job in self._list(query)["items"]}
            last = {seen.uid: seen for seen in self.changes_of(key)}
            return stored == {uid: seen.end for uid, seen in last.items() if seen.change != "DELETED"}

        wait_until(same)

    def summary(self, key: RunKey) -> str:
        """Return a short summary of a run key's TrainJobs."""
        ends = list(self.end_states(key).values())
        text = f"{len(self.created_uids(key))} created: {', '.join(ends) or 'none has ended'}"
        return f"{text}; {len(self.active_uids(key))} active at the end"

    def record_and_check(
        self,
        evidence: Callable[..., None],
        key: RunKey,
        *,
        point: str,
        actor: str,
        beside: str,
        kills: int,
        suffix: str = "",
    ) -> None:
        """Add a row about a run key's TrainJobs; fail if two were active at the same time."""
        self.wait_until_current(key)
        most = self.max_active(key)
        evidence(
            "crash points",
            point=point,
            actor=actor,
            beside=beside,
            kills=kills,
            result=self.summary(key) + suffix,
            most_active=most,
        )
        assert most == 1, key.task

    def _active_over_time(self, key: RunKey) -> Iterator[set[str]]:
        active: set[str] = set()
        for seen in self.changes_of(key):
            if seen.end or seen.change == "DELETED":
                active.discard(seen.uid)
            else:
                active.add(seen.uid)
            yield set(active)

    def _list(self, query: str) -> Any:
        with closing(http.client.HTTPSConnection(self._address, context=self._tls)) as connection:
            connection.request("GET", _TRAINJOBS + query, headers=self._headers)
            return json.load(connection.getresponse())

    def _read(self) -> None:
        while line := self._stream.readline():
            event = json.loads(line)
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
            meta = event["object"]["metadata"]
            key = (meta.get("labels") or {}).get(_RUN_KEY_LABEL, "")
            with self._lock:
                self._changes.setdefault(key, []).append(
                    ObservedChange(event["type"], meta["uid"], _end_state(event["object"]))
                )


def _end_state(job: dict[str, Any]) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = [one["type"] for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"]
    return str(ends[0]) if ends else ""

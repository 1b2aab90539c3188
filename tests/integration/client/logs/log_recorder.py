"""Pods that write logs, and a recorder of the lines that a follower reads from them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.support.polling import until
from trainjob.client import Cluster, LogFollower, LogLine
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL

SECONDS = 60


class LogRecorder:
    """A log follower and the pods that it follows, which belong to no TrainJob; a context manager.

    Attributes:
        lines: every line that was read, in order, by source.
        follower: the follower under test.
        emit: called with each line before it is recorded; may block.
    """

    def __init__(self, there: Cluster, behind: Cluster, name: str) -> None:
        self.there, self.behind, self.name = there, behind, name
        self.emit: Callable[[LogLine], object] = lambda line: None
        self.lines: defaultdict[str, list[LogLine]] = defaultdict(list)
        self.follower = LogFollower(there, "default", self._record)
        self._changed = threading.Condition()

    def __enter__(self) -> LogRecorder:
        informer = self.there.pod_informer("default")
        self._subscription = informer.add_event_handler(self.name, self.follower.observe)
        return self

    def __exit__(self, *_: object) -> None:
        self._subscription.close()
        self.follower.stop()

    def _record(self, line: LogLine) -> None:
        self.emit(line)
        with self._changed:
            self.lines[line.source].append(line)
            self._changed.notify_all()

    def pod(
        self,
        script: str,
        rank: int = 0,
        *,
        restart: str = "Never",
        suffix: str = "",
        containers: Sequence[str] = ("main",),
    ) -> str:
        """Create a pod and return its name."""
        name = f"{self.name}-{rank}{suffix}"
        labels = {JOBSET_LABEL: self.name, STEP_LABEL: "node", RANK_LABEL: str(rank)}
        running = [{"name": one, "image": "busybox", "command": ["sh", "-c", script]} for one in containers]
        made = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"restartPolicy": restart, "containers": running},
        }
        self.behind._http.request("POST", "/api/v1/namespaces/default/pods", doing="create a pod", body=made)
        return name

    def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.behind._http.request("DELETE", path, doing="delete a pod", body={"gracePeriodSeconds": 0})
        until(lambda: self.behind.get_pod(name, "default") is None, SECONDS)

    def until_ended(self, *names: str) -> None:
        """Wait until all pods have ended and the follower knows it."""
        keys = [self.until_phase(name, ("Succeeded", "Failed"))["metadata"]["uid"] for name in names]
        until(lambda: all(any(key[0] == uid for key in list(self.follower._ended)) for uid in keys), SECONDS)

    def until_phase(self, name: str, phases: Sequence[str] = ("Running",)) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            pod = self.behind.get_pod(name, "default")
            return pod if pod and pod["status"].get("phase") in phases else None

        return until(look, SECONDS)

    def until_told(self, what: int | str, source: str = "node-0") -> None:
        """Wait until this line, or this number of lines, was read."""
        with self._changed:
            ready = (
                (lambda: len(self.lines[source]) >= what)
                if isinstance(what, int)
                else lambda: any(line.text == what for line in self.lines[source])
            )
            assert self._changed.wait_for(ready, SECONDS), [line.text for line in self.lines[source]][-3:]

    def texts(self, source: str = "node-0") -> list[str]:
        """Return whole lines, joined from their pieces, without progress frames."""
        texts, held = [], ""
        for line in self.lines[source]:
            held += line.text
            if not line.goes_on:
                texts += [] if line.frame else [held]
                held = ""
        return texts


def compared(told: Iterable[str], written: Iterable[str]) -> dict[str, int]:
    """Count lines, lost lines and repeated lines for the evidence."""
    told, written = Counter(told), Counter(written)
    return {
        "lines": sum(written.values()),
        "lost": sum((written - told).values()),
        "repeated": sum((told - written).values()),
    }

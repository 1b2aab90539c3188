"""Pods that write logs, and a recorder of the lines that a follower reads from them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.support.polling import wait_until
from trainjob.client import Cluster, LogFollower, LogLine, LogNotice, ObjectEvent
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL, container_statuses

SECONDS = 300


class LogRecorder:
    """Log follower and the pods that it follows; a context manager.

    The pods belong to no TrainJob.

    Attributes:
        lines: every line that was read, in order, by source.
        notices: text of every notice of the follower, with its source.
        follower: the follower under test.
        on_line: called with each line before it is recorded; may block.
    """

    def __init__(self, proxied: Cluster, direct: Cluster, name: str) -> None:
        self.proxied, self.direct, self.name = proxied, direct, name
        self.on_line: Callable[[LogLine], object] = lambda line: None
        self.lines: defaultdict[str, list[LogLine]] = defaultdict(list)
        self.notices: list[str] = []
        self.follower = LogFollower(proxied, "default", self._record)
        self._changed, self._ended_pods = threading.Condition(), set[str]()

    def __enter__(self) -> LogRecorder:
        informer = self.proxied.pod_informer("default")
        self._event_handler = informer.add_event_handler(self.name, self._observe)
        return self

    def __exit__(self, *_: object) -> None:
        self._event_handler.close()
        self.follower.stop()

    def _record(self, line: LogLine) -> None:
        self.on_line(line)
        with self._changed:
            if isinstance(line, LogNotice):
                self.notices.append(str(line))
            else:
                self.lines[line.source].append(line)
            self._changed.notify_all()

    def create_pod(
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
        specs = [{"name": container, "image": "busybox", "command": ["sh", "-c", script]} for container in containers]
        pod = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"restartPolicy": restart, "containers": specs},
        }
        self.direct._http.request("POST", "/api/v1/namespaces/default/pods", doing="create a pod", body=pod)
        return name

    def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.direct._http.request("DELETE", path, doing="delete a pod", body={"gracePeriodSeconds": 0})
        wait_until(lambda: self.direct.get_pod(name, "default") is None, SECONDS)

    def wait_until_ended(self, *names: str) -> None:
        """Wait until all pods have ended and the follower knows it."""
        keys = [self.wait_for_phase(name, ("Succeeded", "Failed"))["metadata"]["uid"] for name in names]
        wait_until(lambda: self._ended_pods.issuperset(keys), SECONDS)

    def _observe(self, event: ObjectEvent) -> None:
        self.follower.observe(event)
        pod = event.object or {}
        if any("terminated" in status["state"] for status in container_statuses(pod)):
            self._ended_pods.add(pod["metadata"]["uid"])

    def wait_for_phase(self, name: str, phases: Sequence[str] = ("Running",)) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            pod = self.direct.get_pod(name, "default")
            return pod if pod and pod["status"].get("phase") in phases else None

        return wait_until(find, SECONDS)

    def wait_for_lines(self, expected: int | str, source: str = "node-0") -> None:
        """Wait until this line, or this number of lines, was read."""
        with self._changed:
            ready = (
                (lambda: len(self.lines[source]) >= expected)
                if isinstance(expected, int)
                else lambda: any(line.text == expected for line in self.lines[source])
            )
            assert self._changed.wait_for(ready, SECONDS), [line.text for line in self.lines[source]][-3:]

    def whole_lines(self, source: str = "node-0") -> list[str]:
        """Return whole lines, joined from their pieces, without progress frames."""
        texts, held = [], ""
        for line in self.lines[source]:
            held += line.text
            if not line.continued:
                texts += [] if line.frame else [held]
                held = ""
        return texts


def compare_lines(received: Iterable[str], written: Iterable[str]) -> dict[str, int]:
    """Count lines, lost lines and repeated lines for the evidence."""
    received, written = Counter(received), Counter(written)
    return {
        "lines": sum(written.values()),
        "lost": sum((written - received).values()),
        "repeated": sum((received - written).values()),
    }

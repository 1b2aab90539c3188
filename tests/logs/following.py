"""Pods that write logs, and what a follower is told of them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from trainjob.client import LogFollower
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL
from waiting_for import until

SECONDS = 60


class Followed:
    """A follower of one TrainJob's pods, which are made here, without a TrainJob; a context manager.

    Attributes:
        lines: all that was told, in order, by source.
        follower: which tells it.
        emit: takes each line before it is noted; may block.
    """

    def __init__(self, there, behind, name):
        self.there, self.behind, self.name = there, behind, name
        self.emit = lambda line: None
        self.lines = defaultdict(list)
        self.follower = LogFollower(there, "default", self._note)
        self._told = threading.Condition()

    def __enter__(self):
        informer = self.there.pod_informer("default")
        self._subscription = informer.add_event_handler(self.name, self.follower.observe)
        return self

    def __exit__(self, *_):
        self._subscription.close()
        self.follower.stop()

    def _note(self, line):
        self.emit(line)
        with self._told:
            self.lines[line.source].append(line)
            self._told.notify_all()

    def pod(self, script, rank=0, *, restart="Never", suffix="", containers=("main",)):
        """Make a pod; its name."""
        name = f"{self.name}-{rank}{suffix}"
        labels = {JOBSET_LABEL: self.name, STEP_LABEL: "node", RANK_LABEL: str(rank)}
        running = [{"name": one, "image": "busybox", "command": ["sh", "-c", script]} for one in containers]
        made = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"restartPolicy": restart, "containers": running},
        }
        self.behind._http.request("POST", "/api/v1/namespaces/default/pods", doing="create a pod", body=made)
        return name

    def delete(self, name):
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.behind._http.request("DELETE", path, doing="delete a pod", body={"gracePeriodSeconds": 0})
        until(lambda: self.behind.get_pod(name, "default") is None, SECONDS)

    def until_ended(self, *names):
        """All have come to their ends, and the watch has told so."""
        keys = [self.until_phase(name, ("Succeeded", "Failed"))["metadata"]["uid"] for name in names]
        until(lambda: all(any(key[0] == uid for key in list(self.follower._ended)) for uid in keys), SECONDS)

    def until_phase(self, name, phases=("Running",)):
        def look():
            pod = self.behind.get_pod(name, "default")
            return pod if pod["status"].get("phase") in phases else None

        return until(look, SECONDS)

    def until_told(self, what, source="node-0"):
        """Wait until this line was told, or for so many lines."""
        with self._told:
            ready = (
                (lambda: len(self.lines[source]) >= what)
                if isinstance(what, int)
                else lambda: any(line.text == what for line in self.lines[source])
            )
            assert self._told.wait_for(ready, SECONDS), [line.text for line in self.lines[source]][-3:]

    def texts(self, source="node-0"):
        """The texts of the whole lines, pieces put together; frames are left out."""
        texts, held = [], ""
        for line in self.lines[source]:
            held += line.text
            if not line.goes_on:
                texts += [] if line.frame else [held]
                held = ""
        return texts


def compared(told, written):
    """Counts for the evidence: lines, lost, repeated."""
    told, written = Counter(told), Counter(written)
    return {
        "lines": sum(written.values()),
        "lost": sum((written - told).values()),
        "repeated": sum((told - written).values()),
    }

"""TrainJobs whose pods exist only as objects: the laptop cluster's API server serves logs that a test writes.

No process starts, so thousands of waits are cheap. The logs behave as those of the kubelet: `sinceTime`, `follow`,
previous runs, and files that were rotated away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.support.counting_server import TOKEN
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.lifecycle import JobReference
from trainjob.manifest import build_trainjob
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL
from trainjob_local.apiserver import ApiServer, LogRequest, Registry, StatusError

_NAMESPACE = "default"
_RECORD_BYTES = 1 << 14


class ScriptedLog:
    """The log of one run of a container.

    Args:
        spread: seconds between the times of two lines; 0 means the time at which the line is written.
        previous: log of the run before this one, whose lines are older.
    """

    def __init__(self, spread: float, previous: ScriptedLog | None = None) -> None:
        self._spread, self._lines, self._first, self._ended = spread, list[tuple[bytes, bytes]](), 0, False
        self._changed = threading.Condition()
        began = datetime.now(timezone.utc) - timedelta(minutes=5)
        self._last: datetime = previous._last + timedelta(milliseconds=1) if previous else began

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines; each contains its line end."""
        with self._changed:
            for line in lines:
                step = self._last + timedelta(seconds=self._spread, microseconds=1)
                self._last = step if self._spread else max(step, datetime.now(timezone.utc))
                self._lines.append((self._last.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode(), line))
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def rotate(self) -> None:
        """Start a new file: requests from now on begin after the last line; open streams continue."""
        with self._changed:
            self._first = len(self._lines)

    def read(self, request: LogRequest) -> Iterator[bytes]:
        """Yield what a request selects."""
        if request.tail_lines == 1 and not request.follow:
            yield from map(_last_record, self._lines[self._first :][-1:])
            return
        since = request.since.strftime("%Y-%m-%dT%H:%M:%S").encode() if request.since else b""
        place = self._first
        while not request.cancelled.is_set():
            with self._changed:
                lines, ended = self._lines[place : place + 1000], self._ended
                if not lines and request.follow and not ended:
                    self._changed.wait(0.5)
                    continue
            if not lines:
                return
            place += len(lines)
            if content := b"".join(b"%s %s" % line for line in lines if line[0] >= since):
                yield content


@dataclass
class ScriptedContainer:
    """A container of a scripted pod.

    Attributes:
        pod: name of the pod.
        name: name of the container.
        runs: the logs of its runs, the current one last.
        exit_code: exit code of the current run; None while it runs.
    """

    pod: str
    name: str
    runs: list[ScriptedLog]
    exit_code: int | None = None

    def to_status(self) -> dict[str, Any]:
        """Return its entry in the pod's status."""
        restarts = len(self.runs) - 1
        last = {"lastState": {"terminated": _terminated(1)}} if restarts else {}
        running = {"running": {"startedAt": _now()}}
        state = running if self.exit_code is None else {"terminated": _terminated(self.exit_code)}
        image = {"image": "x", "imageID": "x", "ready": False}
        return {"name": self.name, **image, "restartCount": restarts, "state": state, **last}


class ScriptedCluster:
    """An API server without controllers and kubelets; a context manager.

    Attributes:
        url: URL of the server.
        token: its bearer token.
        containers: the containers by pod and container name; without a pod, there is no log.
    """

    def __init__(self) -> None:
        self._registry = Registry()
        self._server = ApiServer(self._registry, admin_token=TOKEN, log_source=self._open_log)
        self.containers: dict[tuple[str, str], ScriptedContainer] = {}
        self.token = TOKEN

    def __enter__(self) -> ScriptedCluster:
        self._server.start()
        self.url = self._server.url
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._registry.close()

    def _open_log(self, request: LogRequest) -> Iterator[bytes]:
        container = self.containers.get((request.pod, request.container))
        if container is None:
            raise StatusError(404, "NotFound", f'pods "{request.pod}" not found')
        if request.previous and len(container.runs) < 2:
            message = f'previous terminated container "{container.name}" in pod "{container.pod}" not found'
            raise StatusError(400, "BadRequest", message)
        return container.runs[-2 if request.previous else -1].read(request)

    def create_job(self, name: str, ranks: int, containers: Sequence[str], spread: float) -> ScriptedJob:
        """Create a running TrainJob with one pod for each rank."""
        trainer = CustomTrainerContainer(image="x", command=["y"], num_nodes=ranks)
        marks = {"trainjob.dev/run-key": "0123456789abcdef"}
        manifest = build_trainjob(
            TrainJob(trainer=trainer), name=name, namespace=_NAMESPACE, labels=marks, annotations={}
        )
        uid = self._registry.create("trainjobs", manifest, _NAMESPACE)["metadata"]["uid"]
        job = ScriptedJob(self, JobReference(name, _NAMESPACE, uid), spread)
        for rank in range(ranks):
            pod = f"{name}-node-{rank}"
            labels = {JOBSET_LABEL: name, STEP_LABEL: "node", RANK_LABEL: str(rank)}
            specs = [{"name": container, "image": "x"} for container in containers]
            body = {
                "metadata": {"name": pod, "labels": labels},
                "spec": {"restartPolicy": "OnFailure", "containers": specs},
            }
            job.containers[pod] = [ScriptedContainer(pod, each, [ScriptedLog(spread)]) for each in containers]
            self.containers |= {(pod, each.name): each for each in job.containers[pod]}
            self._registry.create("pods", body, _NAMESPACE)
            self._registry.bind(pod, "node", _NAMESPACE)
            job.report(pod)
        return job

    def patch_status(self, resource: str, name: str, status: dict[str, Any]) -> None:
        self._registry.patch(resource, name, {"status": status}, _NAMESPACE, subresource="status")

    def delete_pod(self, name: str) -> None:
        """Delete a pod and its logs at once."""
        for key in [key for key in self.containers if key[0] == name]:
            for log in self.containers.pop(key).runs:
                log.end()
        self._registry.delete("pods", name, _NAMESPACE, grace=0)

    def has_job(self, name: str) -> bool:
        return any(job["metadata"]["name"] == name for job in self._registry.list("trainjobs", _NAMESPACE))


@dataclass
class ScriptedJob:
    """A running TrainJob, whose containers a test lets write, restart and end.

    Attributes:
        containers: the containers of each pod.
    """

    cluster: ScriptedCluster
    reference: JobReference
    spread: float
    containers: dict[str, list[ScriptedContainer]] = field(default_factory=dict)

    def report(self, pod: str) -> None:
        """Write the status of a pod."""
        codes = [container.exit_code for container in self.containers[pod]]
        phase = "Running" if None in codes else "Failed" if any(codes) else "Succeeded"
        statuses = [container.to_status() for container in self.containers[pod]]
        self.cluster.patch_status("pods", pod, {"phase": phase, "containerStatuses": statuses})

    def end_container(self, container: ScriptedContainer, exit_code: int = 0) -> None:
        container.runs[-1].end()
        container.exit_code = exit_code
        self.report(container.pod)

    def restart(self, container: ScriptedContainer) -> None:
        """End the current run with an error, and start the next one; report no status yet."""
        container.runs[-1].end()
        container.runs.append(ScriptedLog(self.spread, previous=container.runs[-1]))

    def finish(self, condition: str = "Complete") -> None:
        """Set the TrainJob's last condition."""
        terminal = {"type": condition, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": _now()}
        self.cluster.patch_status("trainjobs", self.reference.name, {"conditions": [terminal]})

    def delete_pod(self, pod: str) -> None:
        """Delete a pod and its logs at once."""
        del self.containers[pod]
        self.cluster.delete_pod(pod)

    def delete_pods_after_job(self, seconds: float) -> None:
        """Wait until the TrainJob is deleted, then delete its pods."""
        deadline = time.monotonic() + seconds
        while self.cluster.has_job(self.reference.name) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pod in list(self.containers):
            self.delete_pod(pod)


def _last_record(line: tuple[bytes, bytes]) -> bytes:
    """Return what `tailLines=1` returns: the last record, which is the end of a long line."""
    stamp, text = line
    body = text.rstrip(b"\n")
    return b"%s %s%s" % (stamp, body[-(len(body) % _RECORD_BYTES or _RECORD_BYTES) :], text[len(body) :])


def _terminated(exit_code: int) -> dict[str, Any]:
    return {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": _now(),
        "finishedAt": _now(),
    }


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Tasks of a complete Airflow that stay in a phase until a test releases them, and a record of their TrainJobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.api_proxy import ApiProxy
from tests.support.standalone import Standalone, wait_for_airflow
from trainjob.client import Cluster
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

CREATION = '"trainjob.dev/task": "creating"'  # only the request that creates that task's job has this text
PHASES = ("creating", "deferred", "resumed", "on_worker")  # the tasks of the DAG `phases`


class TrainJobRecorder:
    """A record of every TrainJob and the time of its deletion, from a watch."""

    def __init__(self, cluster: Cluster) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._deleted_at: dict[str, float] = {}
        self._event_handler = cluster.trainjob_informer("default").add_event_handler(None, self._record)

    def _record(self, event: Any) -> None:
        uid = event.object["metadata"]["uid"]
        with self._lock:
            self._jobs[uid] = event.object
            if event.deleted:
                self._deleted_at.setdefault(uid, time.monotonic())

    def jobs(self, run: str, task: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the TrainJobs of a DAG run's task by UID, oldest first, with the deleted ones."""
        name = run.rpartition("/")[2]
        with self._lock:
            known = dict(self._jobs)
        own = []
        for uid, job in known.items():
            key = json.loads(job["metadata"].get("annotations", {}).get(labels.RUN_KEY, "{}"))
            if key.get("run") == name and task in (None, key["task"]):
                own.append(uid)
        return {uid: known[uid] for uid in sorted(own, key=lambda uid: known[uid]["metadata"]["creationTimestamp"])}

    def deleted_at(self, uid: str) -> float | None:
        """Return the time of a TrainJob's deletion by `time.monotonic`; None if it exists."""
        with self._lock:
            return self._deleted_at.get(uid)

    def close(self) -> None:
        self._event_handler.close()


class RunningTasks:
    """The tasks of one test, each of which stays in a phase.

    Attributes:
        folder: folder of the files that the tasks wait for.
    """

    def __init__(
        self, airflow: Standalone, recorder: TrainJobRecorder, cluster: Cluster, proxy: ApiProxy, folder: Path
    ) -> None:
        self.airflow, self.folder = airflow, folder
        self._recorder, self._cluster, self._proxy = recorder, cluster, proxy

    def start(self, dag: str) -> str:
        """Start a DAG run, and return its path."""
        return self.airflow.start_run(dag, go=str(self.folder))

    def has_pods(self, run: str, task: str | None = None) -> bool:
        """Return whether the task's newest job has a pod."""
        jobs = list(self._recorder.jobs(run, task).values())
        return bool(jobs and self._cluster.list_pods(jobs[-1]["metadata"]["name"], "default"))

    def is_complete(self, run: str, task: str) -> bool:
        """Return whether a job of the task is complete."""
        return any(derive_verdict(job).phase is Phase.COMPLETE for job in self._recorder.jobs(run, task).values())

    def is_waited_for(self, run: str, task: str = "task") -> bool:
        """Return whether a worker or a triggerer waits for the task's job."""
        is_running = self.airflow.get_state(run, task) == "running"
        return (is_running or self.is_deferred(run, task)) and self.has_pods(run, task)

    def is_deferred(self, run: str, task: str = "task") -> bool:
        """Return whether a triggerer has the task.

        A job may be running before the worker has released the task.
        """
        found = self.airflow.request("GET", f"{run}/taskInstances/{task}")
        return bool(found["state"] == "deferred" and found["triggerer_job"] is not None)

    def start_in_every_phase(self) -> tuple[str, str]:
        """Start a DAG run with a task in each phase, and one whose job has ended while it waits."""
        self._proxy.withhold_responses(CREATION)
        run = self.start("phases")
        self.end_when_deferred(run, "resumed")
        wait_for_airflow(lambda: self.is_in_every_phase(run), 90)
        ended = self.start("ended")
        self.end_when_deferred(ended, "ended")
        wait_for_airflow(lambda: self.is_complete(ended, "ended"), 15)
        assert self.airflow.get_state(ended, "ended") == "deferred"
        assert self.is_in_every_phase(run)
        return run, ended

    def finish_every_phase(self, run: str, ended: str) -> None:
        """Let the runs of [start_in_every_phase][] succeed with one job for each task."""
        self.release_all()
        self.wait_for_success(run, ended)
        self.assert_one_job_each(run, PHASES)
        self.assert_one_job_each(ended, ["ended"])

    def end_when_deferred(self, run: str, task: str) -> None:
        """End a task's job once the task is deferred, because a finished job is not deferred."""
        wait_for_airflow(lambda: self.airflow.get_state(run, task) == "deferred", 60)
        (self.folder / f"{task}.ends").touch()

    def is_in_every_phase(self, run: str) -> bool:
        """Return whether each task of the DAG `phases` is in its phase."""
        listed = self.airflow.request("GET", f"{run}/taskInstances")["task_instances"]
        states = {found["task_id"]: found["state"] for found in listed}
        return bool(
            states == {"creating": "running", "deferred": "deferred", "resumed": "running", "on_worker": "running"}
            and self._recorder.jobs(run, "creating")
            and self.has_pods(run, "deferred")
            and (self.folder / "resumed.waits").exists()
            and self.has_pods(run, "on_worker")
        )

    def release_all(self) -> None:
        """Let all jobs and tasks continue."""
        self._proxy.release_responses()
        for name in (*PHASES, "resumed.ends", "ended.ends", "task", "late"):
            (self.folder / name).touch()

    def wait_for_success(self, *runs: str, seconds: float = 150) -> None:
        """Wait until all runs have succeeded; no run may fail."""

        def ended() -> bool:
            states = [self.airflow.get_state(run) for run in runs]
            assert "failed" not in states
            return set(states) == {"success"}

        wait_for_airflow(ended, seconds)

    def get_try_number(self, run: str, task: str = "task") -> int:
        """Return the number of the task's newest try."""
        return int(self.airflow.request("GET", f"{run}/taskInstances/{task}")["try_number"])

    def assert_one_job_each(self, run: str, tasks: Iterable[str]) -> None:
        """Check that each task has created one job."""
        made = {task: len(self._recorder.jobs(run, task)) for task in tasks}
        assert made == dict.fromkeys(made, 1)

"""Jobs that fail or do not start, and waiters that record what is reported about them."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.support.kubernetes_client import Object
from tests.support.trainjobs import IMAGE
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster
from trainjob.errors import JobFailed
from trainjob.lifecycle import JobReference, Limits, Listener, cancel, submit, wait
from trainjob.status import Outcome

CLUSTERS = {"laptop": "laptop", "controlplane-2.3": "control plane 2.3"}


def shell(script: str = "true", *, job: Mapping[str, Any] | None = None, **trainer: Any) -> TrainJob:
    """Return a job that runs a script; `trainer` adds to its trainer, `job` to the rest."""
    made = CustomTrainerContainer(**{"image": IMAGE, "command": ["sh", "-c", script], **trainer})
    return TrainJob(trainer=made, **(job or {}))


def own(script: str = "true", **trainer: Any) -> TrainJob:
    """Return a job on the namespace's runtime `own`."""
    return shell(script, job={"runtime": {"name": "own", "kind": "TrainingRuntime"}}, **trainer)


@dataclass
class Waiter:
    """A waiter for one job, on a thread of its own, that records the reported phases."""

    reference: JobReference
    told: list[str] = field(default_factory=list)
    heard: threading.Condition = field(default_factory=threading.Condition)
    end: Future[Outcome] = field(default_factory=Future)

    def hear(self, verdict: object) -> None:
        with self.heard:
            self.told.append(str(verdict))
            self.heard.notify_all()

    def until_told(self, text: str, seconds: float = 90) -> str:
        """Wait until a report contains this text, and return that report."""

        def found() -> list[str]:
            return [line for line in self.told if text in line]

        with self.heard:
            assert self.heard.wait_for(found, seconds), f"{text!r} was never told: {self.told}"
            return found()[0]

    def error(self, seconds: float = 150) -> JobFailed:
        """Return the error with which the job failed."""
        try:
            self.end.result(seconds).raise_for_failure()
        except JobFailed as error:
            return error
        raise AssertionError(f"it succeeded: {self.told}")


class JobGroup:
    """A group of jobs that are submitted and waited for at the same time."""

    def __init__(self, engine: Cluster, unique: str, pool: ThreadPoolExecutor) -> None:
        self._engine, self._unique, self._pool = engine, unique, pool
        self._references: list[JobReference] = []

    def submit(self, name: str, job: TrainJob, prepare: Callable[[JobReference], None] = lambda _: None) -> Waiter:
        """Submit a job, run `prepare`, then start waiting for the job."""
        reference = submit(self._engine, job, RunKey("conformance", "diagnosis", name, self._unique))
        self._references.append(reference)
        prepare(reference)
        waiter = Waiter(reference)
        limits = Limits(max_restarts=job.max_restarts)
        waiter.end = self._pool.submit(
            wait, self._engine, reference, limits=limits, listener=Listener(on_phase=waiter.hear)
        )
        return waiter

    def cancel_all(self) -> None:
        """Delete the jobs that still exist, so that all waiters end."""
        for reference in self._references:
            cancel(self._engine, reference)


def row(trouble: str, backend: str, told: str, error: JobFailed | None = None, *, early: bool = True) -> Object:
    """Return a row for docs/reliability.md with the report that the waiter received."""
    end = "shown while waiting"
    if error is not None:
        end = f"{'early' if early else 'ends by itself'} as {type(error).__name__}"
    short = textwrap.shorten(told.replace("|", "/"), 160, placeholder="...")
    retryable = "-" if error is None else "yes" if error.retryable else "no"
    cluster = CLUSTERS.get(backend, backend)
    return {"trouble": trouble, "cluster": cluster, "told": short, "end": end, "retryable": retryable}

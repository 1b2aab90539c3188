"""Jobs that fail or do not start, and waiters that record what is reported about them."""

from __future__ import annotations

import contextlib
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
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


def shell_job(script: str = "true", *, job: Mapping[str, Any] | None = None, **trainer: Any) -> TrainJob:
    """Return a job that runs a script; `trainer` adds to its trainer, `job` to the rest."""
    made = CustomTrainerContainer(**{"image": IMAGE, "command": ["sh", "-c", script], **trainer})
    return TrainJob(trainer=made, **(job or {}))


def own_runtime_job(script: str = "true", *, job: Mapping[str, Any] | None = None, **trainer: Any) -> TrainJob:
    """Return a job on the namespace's runtime `own`, with the arguments of `shell_job`."""
    return shell_job(script, job={"runtime": {"name": "own", "kind": "TrainingRuntime"}, **(job or {})}, **trainer)


@dataclass
class Waiter:
    """Waiter for one job, on a thread of its own, which records the reported phases."""

    reference: JobReference
    reports: list[str] = field(default_factory=list)
    report_added: threading.Condition = field(default_factory=threading.Condition)
    outcome: Future[Outcome] = field(default_factory=Future)

    def on_phase(self, verdict: object) -> None:
        with self.report_added:
            self.reports.append(str(verdict))
            self.report_added.notify_all()

    def wait_for_report(self, text: str, seconds: float = 90) -> str:
        """Wait until a report contains this text, and return that report."""

        def found() -> list[str]:
            return [line for line in self.reports if text in line]

        with self.report_added:
            assert self.report_added.wait_for(found, seconds), f"{text!r} was never reported: {self.reports}"
            return found()[0]

    def job_error(self, seconds: float = 150) -> JobFailed:
        """Return the error with which the job failed."""
        try:
            self.outcome.result(seconds).raise_for_failure()
        except JobFailed as error:
            return error
        raise AssertionError(f"the job succeeded; reports: {self.reports}")


class JobGroup:
    """A group of jobs that are submitted and waited for at the same time."""

    def __init__(self, cluster: Cluster, run_id: str, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._run_id, self._pool = cluster, run_id, pool
        self._references: list[JobReference] = []

    def submit(self, name: str, job: TrainJob, prepare: Callable[[JobReference], None] = lambda _: None) -> Waiter:
        """Submit a job, run `prepare`, then start waiting for the job."""
        reference = submit(self._cluster, job, RunKey("conformance", "diagnosis", name, self._run_id))
        self._references.append(reference)
        prepare(reference)
        waiter = Waiter(reference)
        limits = Limits(max_restarts=job.max_restarts)
        waiter.outcome = self._pool.submit(
            wait, self._cluster, reference, limits=limits, listener=Listener(on_phase=waiter.on_phase)
        )
        return waiter

    def cancel_all(self) -> None:
        """Delete the jobs that still exist, so that all waiters end."""
        for reference in self._references:
            cancel(self._cluster, reference)


def diagnosis_row(
    problem: str, backend: str, report: str, error: JobFailed | None = None, *, ended_early: bool = True
) -> Object:
    """Return a row for docs/evidence/reliability.md with the report that the waiter received."""
    end = "job waits; shown in the log"
    if error is not None:
        end = f"{'ended early' if ended_early else 'failed by itself'}: {type(error).__name__}"
    short = textwrap.shorten(report.replace("|", "/"), 160, placeholder="...")
    retryable = "-" if error is None else "yes" if error.retryable else "no"
    cluster = CLUSTERS.get(backend, backend)
    return {"problem": problem, "cluster": cluster, "report": short, "end": end, "retryable": retryable}


@contextlib.contextmanager
def open_job_group(cluster: Cluster, run_id: str) -> Iterator[JobGroup]:
    """Open a group with 16 threads; its jobs are cancelled at the end."""
    with ThreadPoolExecutor(16) as pool:
        group = JobGroup(cluster, run_id, pool)
        yield group
        group.cancel_all()

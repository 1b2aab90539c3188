"""What a component does in its pod: have one TrainJob work for this pipeline task, follow it, and end as it ends.

Nothing here imports kfp, so that it runs and is tested without it.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NamedTuple, Protocol

from trainjob.cluster import Cluster, Connection
from trainjob.errors import AdmissionRefused, ClusterError, InvalidSpec, OwnershipConflict, TrainJobError
from trainjob.manifest import train_job
from trainjob.run import Adopt, Limits, Listener, Narrator, RunKey, submit, wait
from trainjob.spec import Step, TrainJob
from trainjob.status import Outcome, Verdict
from trainjob_kfp.identity import own_run_key
from trainjob_kfp.narration import print_line
from trainjob_kfp.termination import Terminator

JOB_FAILED, INVALID_REQUEST, INFRASTRUCTURE_FAILED = 1, 2, 3


class Outputs(NamedTuple):
    """What every component gives to later steps; their return annotations name the same fields.

    Attributes:
        job: the TrainJob's name.
        namespace: where it is.
        uid: its uid.
        status: `Complete`.
        output_path: where the step's result is: a folder of the workspace, or a URI.
    """

    job: str
    namespace: str
    uid: str
    status: str
    output_path: str


class Metrics(Protocol):
    """A `kfp.dsl.Metrics` artifact, as far as it is used here."""

    def log_metric(self, metric: str, value: float) -> None:
        """Record one value."""


def launch(
    request: Step | TrainJob,
    *,
    namespace: str = "",
    keep_on_kill: bool = False,
    connection: Connection | None = None,
    key: RunKey | None = None,
) -> Outcome:
    """Submit or adopt the TrainJob of this pipeline task and follow it to its end.

    A launcher that starts again - another try, a rescheduled pod, RetryRun - adopts the TrainJob of the earlier one,
    running or succeeded. SIGTERM deletes the TrainJob. Phases, log lines and progress go to standard output.

    Args:
        request: a step such as `FineTune`, or any `TrainJob`.
        namespace: the TrainJob's namespace; empty means the launcher's own.
        keep_on_kill: leave the TrainJob alone when the launcher is killed.
        connection: how to reach the cluster; by default `KUBECONFIG`, then the pod's service account.
        key: who asks; by default found in the pod or in what KFP's executor was given.

    Returns:
        How it ended: always with success.

    Raises:
        InvalidSpec: the request can't be expressed; nothing was sent.
        AdmissionRefused: the cluster refuses the TrainJob.
        JobFailed: it failed, or somebody deleted it.
        ClusterError: the cluster can't be asked.
    """
    connection = connection or Connection()
    job = train_job(request)
    cluster = Cluster(connection)
    try:
        key = key or own_run_key(connection, task=type(request).__name__.lower())
        with Terminator(connection, keep=keep_on_kill) as terminator:
            reference = submit(cluster, request, key, namespace=namespace, adopt=Adopt.SUCCEEDED)
            terminator.guard(reference)
            print_line(f"TrainJob {reference}: {'adopted' if reference.adopted else 'created'}, uid {reference.uid}")
            listener = _standing_down(Narrator(reference, print_line).listener, terminator)
            outcome = wait(cluster, reference, limits=Limits(max_restarts=job.max_restarts), listener=listener)
    finally:
        cluster.close()
    outcome.raise_for_failure()
    return outcome


def _standing_down(listener: Listener, terminator: Terminator) -> Listener:
    """A TrainJob that has ended is a record of what happened, and what a later try adopts: no signal deletes it."""

    def on_phase(verdict: Verdict) -> None:
        if verdict.phase.finished:
            terminator.stand_down()
        listener.on_phase(verdict)

    return Listener(on_phase, listener.on_log, listener.on_progress)


def outputs(outcome: Outcome, output_path: str = "") -> Outputs:
    """A component's output parameters."""
    return Outputs(outcome.job, outcome.namespace, outcome.uid, outcome.phase.value, output_path)


def log_progress(outcome: Outcome, metrics: Metrics) -> None:
    """The last training loss and the optimizer steps done, as far as the training's log told them."""
    progress = outcome.progress
    if progress is None:
        return
    metrics.log_metric("steps", float(progress.step))
    if progress.loss is not None:
        metrics.log_metric("loss", progress.loss)


class Explained:
    """A context manager that ends the process with an explanation and an exit code instead of a traceback.

    The code is 2 when the request is wrong, 3 when the cluster could not be used, 1 when the TrainJob failed. It is
    seen by `kfp.local`'s runners and in plain pods; on a cluster KFP 2.17's launcher makes a 1 of every failure
    (backend/src/v2/cmd/launcher-v2/main.go), so the text is what tells them apart there.
    """

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process after one of our own errors; others are bugs and keep their traceback.

        Raises:
            SystemExit: with the code.
        """
        if isinstance(error, TrainJobError):
            sys.stdout.flush()
            print(f"{_blame(error)}\n{error}", file=sys.stderr, flush=True)
            raise SystemExit(exit_code(error)) from error


def exit_code(error: TrainJobError) -> int:
    """Who has to act: the pipeline's author (2), the cluster's owner (3), or whoever reads the training's log (1)."""
    if isinstance(error, InvalidSpec | AdmissionRefused):
        return INVALID_REQUEST
    if isinstance(error, ClusterError | OwnershipConflict):
        return INFRASTRUCTURE_FAILED
    return JOB_FAILED


def _blame(error: TrainJobError) -> str:
    return {
        INVALID_REQUEST: "The step's request is wrong:",
        INFRASTRUCTURE_FAILED: "The cluster could not be used for this step:",
        JOB_FAILED: "The step failed:",
    }[exit_code(error)]

"""What a component does in its pod: have one TrainJob work for this pipeline task, follow it, and end as it ends.

Nothing here imports kfp, so that it runs and is tested without it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, get_args

from trainjob.client import Cluster, Connection, LogLine, LogWriter
from trainjob.errors import ExitCode, InvalidSpec, Problem, TrainJobError
from trainjob.lifecycle import (
    JobReference,
    Limits,
    Listener,
    OnTimeout,
    ProgressLog,
    RunKey,
    reattempt_notice,
    run_key_of,
    submit,
    wait,
)
from trainjob.lifecycle.unattended import JobGuard, ended_after_errors
from trainjob.manifest import labels, train_job
from trainjob.spec import Step, TrainJob, TrainJobManifest
from trainjob.status import Outcome, Progress, Verdict, judge
from trainjob_kfp.drain import OwnPod
from trainjob_kfp.identity import home_of, own_pod, own_run_key, workflow_owner
from trainjob_kfp.narration import print_line
from trainjob_kfp.termination import Terminator

_BLAME = {
    ExitCode.FAILED: "The cluster could not be used for this step:",
    ExitCode.INVALID_REQUEST: "The step's request is wrong:",
    ExitCode.JOB_FAILED: "The step failed:",
    ExitCode.STILL_RUNNING: "The step's TrainJob may still run:",
}

OnKill = Literal["delete", "keep", "keep_on_drain"]
"""What becomes of the TrainJob when the launcher is told to end; see [launch][]."""


def launch(
    request: Step | TrainJob | TrainJobManifest,
    *,
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    connection: Connection | None = None,
    key: RunKey | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_line: Callable[[LogLine], None] = lambda _: None,
) -> Outcome:
    """Submit or adopt the TrainJob of this pipeline task and follow it to its end.

    A launcher that starts again - another try, a rescheduled pod, RetryRun - adopts the TrainJob of the earlier one,
    running or succeeded. Phases, log lines and progress go to standard output. If it does not take the lines as fast as
    they come, some are skipped with a notice; `on_line` gets each of them.

    Args:
        request: a step such as `FineTune`, any `TrainJob`, or a `TrainJobManifest`.
        namespace: the TrainJob's namespace; empty means the launcher's own.
        on_kill: what SIGTERM and SIGINT do to the TrainJob, and an unexpected error of the launcher, for which
            `keep_on_drain` is `delete`. `delete`: it goes first, whatever the reason. `keep`: it goes on.
            `keep_on_drain`: it goes on when the launcher's pod is being deleted or disrupted, as by a node's drain, and
            is deleted otherwise, as when the run is terminated. Argo 4.0 mostly takes such a pod for lost, and tries
            again with the defaults of KFP 2.17, but may see it fail first: then nobody comes for a TrainJob that is
            kept, so give it a deadline.
        delete_with_run: make the run's Workflow its owner: it is deleted when that is, which KFP 2.17 does an hour
            after the run's end unless told otherwise. Its result must be elsewhere by then.
        connection: how to reach the cluster; by default `KUBECONFIG`, then the pod's service account.
        key: who asks; by default found in the pod or in what KFP's executor was given.
        on_progress: told each time that the training has got on; on another thread.
        on_line: told each line of its containers' logs; on other threads, one after the other.

    Returns:
        How it ended: always with success.

    Raises:
        InvalidSpec: the request can't be expressed; nothing was sent.
        AdmissionRefused: the cluster refuses the TrainJob.
        JobFailed: it failed, or somebody deleted it.
        ClusterError: the cluster can't be asked.
    """
    if on_kill not in get_args(OnKill):
        raise InvalidSpec(Problem("on_kill", repr(on_kill), f"allowed are {', '.join(get_args(OnKill))}"))
    if on_kill == "keep":
        request = request.model_copy(update={"on_kill": "keep"})  # a sweep is to know
    connection = connection or Connection()
    job = train_job(request)
    limits = Limits(max_restarts=job.max_restarts, on_failure=OnTimeout(job.on_failure))
    pod_wanted = delete_with_run or on_kill == "keep_on_drain"
    task = type(request).__name__.lower()
    # Entered first: a signal while the pod is read still leads to the TrainJob of an earlier try, and deletes it.
    with Terminator(connection) as terminator, _at(connection, key, task=task, pod_wanted=pod_wanted) as here:
        cluster = here.cluster
        asked = namespace or (job.namespace if isinstance(job, TrainJobManifest) else "")
        owner = workflow_owner(here.pod, asked or cluster.namespace) if delete_with_run else None
        with _keeping(on_kill, here) as keep:
            guard, action = JobGuard(), "keep" if on_kill == "keep" else "delete"

            def about_to_create(name: str, namespace: str) -> None:
                terminator.about_to_create(name, namespace)
                guard.note_creation(name, namespace)

            def attempt() -> tuple[JobReference, Outcome]:
                terminator.keep_when(keep)
                with guard.submitting():
                    reference = guard.reference = submit(
                        cluster, request, here.key, namespace=namespace, before_create=about_to_create, owner=owner
                    )
                terminator.guard(reference)
                how = "adopted" if reference.adopted else "created"
                print_line(f"TrainJob {reference}: {how}, uid {reference.uid}")
                with guard.waiting(), LogWriter().open(print_line) as log:
                    progress_log = ProgressLog(reference, log.report, log=log)
                    listener = _telling(progress_log.listener, terminator, on_progress, on_line)
                    return reference, wait(cluster, reference, limits=limits, listener=listener)

            with ended_after_errors(guard, cluster, here.key, asked, action, print_line):
                reference, outcome = attempt()
                while notice := reattempt_notice(reference, outcome):
                    print_line(notice)
                    reference, outcome = attempt()
    outcome.raise_for_failure()
    return outcome


def clean_up(
    *, namespace: str = "", finished: bool = False, connection: Connection | None = None, key: RunKey | None = None
) -> list[str]:
    """Delete the TrainJobs of this pipeline run that are still active, of all its tasks: the end of an exit handler.

    A line on standard output tells about each.

    Args:
        namespace: where they are; empty means the launcher's own.
        finished: delete those that have ended, too; never before what they made was exported.
        connection: how to reach the cluster; see [launch][].
        key: the run key of any task of the run; see [launch][].

    Returns:
        The names of those that were deleted.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    with _at(connection or Connection(), key, task="clean-up") as here:
        deleted = []
        for job in _jobs_of_run(here.cluster, here.key, namespace or here.cluster.namespace):
            meta, verdict = job["metadata"], judge(job)
            if verdict.phase.finished and not finished:
                continue
            gone = here.cluster.delete_trainjob(meta["name"], meta["namespace"], meta["uid"])
            deleted += [meta["name"]] if gone else []
            told = "deleted" if gone else "was gone"
            print_line(f"TrainJob {meta['namespace']}/{meta['name']}: {told}; it was {verdict.phase.value}")
    return deleted


def _jobs_of_run(cluster: Cluster, key: RunKey, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Labels find them, cut off to what a label may hold; the annotation tells exactly."""
    wanted = {"engine": key.engine, "workflow": key.workflow, "run": key.run}
    selector = ",".join(f"{labels.PREFIX}/{part}={labels.label_value(text)}" for part, text in wanted.items())
    for job in cluster.list_trainjobs(namespace, selector):
        known = run_key_of(job)
        if known and (known.engine, known.workflow, known.run) == (key.engine, key.workflow, key.run):
            yield job


@dataclass(frozen=True)
class _Here:
    """Where this launcher works and for whom."""

    cluster: Cluster
    home: Cluster
    pod: Mapping[str, Any] | None
    key: RunKey


@contextlib.contextmanager
def _at(connection: Connection, key: RunKey | None, *, task: str, pod_wanted: bool = False) -> Iterator[_Here]:
    """Open the clusters, of which there is mostly one, and read the own pod once, for all that is in it."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster(connection)))
        home = home_of(cluster, connection)
        if home is not cluster:
            stack.callback(home.close)
        pod = own_pod(home) if pod_wanted or key is None else None
        yield _Here(cluster, home, pod, key or own_run_key(pod, task=task))


@contextlib.contextmanager
def _keeping(on_kill: str, here: _Here) -> Iterator[Callable[[], bool]]:
    """What tells, at a signal, whether the TrainJob stays."""
    if on_kill == "keep_on_drain" and here.pod is not None:
        with OwnPod(here.home, here.pod) as watched:
            yield watched.goes
    else:
        yield lambda: on_kill == "keep"


def _telling(
    listener: Listener,
    terminator: Terminator,
    on_progress: Callable[[Progress], None],
    on_line: Callable[[LogLine], None],
) -> Listener:
    """Return a listener that notifies the progress log, the terminator and the caller.

    A TrainJob that has ended is a record of what happened, and a later try adopts it: no signal deletes it.
    """

    def log_phase(verdict: Verdict) -> None:
        if verdict.phase.finished:
            terminator.stand_down()
        else:
            terminator.still_works()
        listener.on_phase(verdict)

    def tell_line(line: LogLine) -> None:
        if not line.frame:
            on_line(line)
        listener.on_log(line)

    def log_progress(progress: Progress) -> None:
        listener.on_progress(progress)
        on_progress(progress)

    return Listener(log_phase, tell_line, log_progress)


class Explained:
    """A context manager that ends the process with an explanation and an exit code instead of a traceback.

    The codes are those of [trainjob.errors.ExitCode][]. They are
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
            print(f"{_BLAME[error.exit_code]}\n{error}", file=sys.stderr, flush=True)
            raise SystemExit(error.exit_code) from error

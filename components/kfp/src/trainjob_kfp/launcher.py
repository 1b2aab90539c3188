"""Launcher: the program in a component's pod that runs one TrainJob.

The launcher submits or adopts the TrainJob of its pipeline task, follows it, and ends with its result. This module does
not import kfp, so that it runs and is tested without kfp.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, get_args

from trainjob.client import Cluster, Connection, LogLine, LogWriter
from trainjob.control_characters import escape_control_characters
from trainjob.errors import ClusterError, ExitCode, InvalidSpec, Problem, TrainJobError
from trainjob.lifecycle import (
    JobReference,
    Limits,
    Listener,
    ProgressLog,
    Resubmission,
    RunKey,
    cancel,
    reference_to,
    run_attempts,
    run_key_of,
    submit,
    wait,
)
from trainjob.lifecycle.job_guard import JobGuard, apply_kill_action_on_error
from trainjob.manifest import labels
from trainjob.spec import Step, TrainJobManifest
from trainjob.status import Outcome, Progress, Verdict, derive_verdict
from trainjob_kfp.code_origin import add_origin
from trainjob_kfp.drain import OwnPodWatch
from trainjob_kfp.identity import get_own_cluster, get_own_pod, get_own_run_key
from trainjob_kfp.run_workflow import RunOwner, TerminationCheck, choose_owner, read_has_cleanup
from trainjob_kfp.standard_output import print_line
from trainjob_kfp.termination import Terminator
from trainjob_kfp.written_times import TimeStore, load_times

_ERROR_PREFIXES = {
    ExitCode.FAILED: "The cluster could not be used for this step:",
    ExitCode.INVALID_REQUEST: "The step's request is wrong:",
    ExitCode.JOB_FAILED: "The step failed:",
    ExitCode.STILL_RUNNING: "The step's TrainJob may still run:",
}

OnKill = Literal["delete", "keep", "keep_on_drain"]
"""Action on the TrainJob when the launcher receives SIGTERM or SIGINT; see [launch][]."""
LAUNCH_ARGUMENTS = ("namespace", "on_kill", "delete_with_run", "attempts")
"""Arguments of every component for the launcher; the others are for the step."""


def launch(
    request: Step,
    *,
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    attempts: int = 1,
    connection: Connection | None = None,
    key: RunKey | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_line: Callable[[LogLine], None] = lambda _: None,
    on_attempt: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Submit or adopt the TrainJob of this pipeline task, and follow it to its end.

    A launcher that starts again adopts the TrainJob of the earlier one if it is running or has succeeded. It starts
    again for another try, for a rescheduled pod, or after RetryRun.

    Phases, log lines and progress are written to standard output. If standard output is slower than the log, some lines
    are skipped with a notice; `on_line` gets all of them.

    With `keep_on_drain`, the TrainJob may be left without a launcher. Argo 4.0 mostly treats a drained pod as lost and,
    with the defaults of KFP 2.17, starts another try. It may also see the pod fail first. Then no launcher adopts the
    TrainJob, so give it a deadline.

    Args:
        request: a step such as `FineTune`, any `TrainJob`, or a `TrainJobManifest`.
        namespace: namespace of the TrainJob; empty means the launcher's own.
        on_kill: action on SIGTERM and SIGINT, and after an unexpected error of the launcher. `delete`: the TrainJob is
            deleted first, whatever the reason. `keep`: the TrainJob continues; in a pipeline with the exit task
            `cleanup`, it is deleted if the run is being terminated. `keep_on_drain`: the TrainJob continues if the
            launcher's pod is being deleted or disrupted, for example by a node drain. Otherwise, for example if the run
            is terminated, it is deleted, also after an unexpected error.
        delete_with_run: whether a finished TrainJob, too, is deleted along with the run's Workflow, which KFP 2.17 does
            an hour after the run's end by default. Its result must be stored elsewhere by then. An unfinished TrainJob
            in the namespace of the run is deleted with the Workflow in any case, except with `keep` and without the
            exit task `cleanup`.
        attempts: how many TrainJobs may fail before the step fails; see [trainjob.lifecycle.plan_resubmission][]. A
            launcher that adopts a TrainJob continues its count; one that creates its first TrainJob starts a new count.
        connection: how to reach the cluster; by default `KUBECONFIG`, then the pod's service account.
        key: run key of the task; by default read from the launcher's pod or the input of KFP's executor.
        on_progress: called after each progress of the training, on another thread.
        on_line: called with each log line of the containers, on other threads, one call at a time.
        on_attempt: called with the number of each attempt, from 1, before its log is read. An attempt after an
            interruption has the number of the interrupted one.

    Returns:
        The outcome of the TrainJob, which is always a success.

    Raises:
        InvalidSpec: the request cannot be expressed; nothing was sent.
        AdmissionRefused: the cluster refuses the TrainJob.
        JobFailed: the TrainJob failed, or was deleted.
        ClusterError: the cluster cannot be reached.
    """
    if problems := list_launch_problems({"attempts": attempts, "on_kill": on_kill}):
        raise InvalidSpec(problems)
    if on_kill == "keep":
        request = request.model_copy(update={"on_kill": "keep"})  # for sweeps, which read this on the TrainJob
    connection = connection or Connection()
    needs_pod = delete_with_run or on_kill != "delete"
    task = type(request).__name__.lower()
    # Entered first: after a signal during the read of the pod, the TrainJob of an earlier try is still deleted.
    with (
        Terminator(connection) as terminator,
        _open_context(connection, key, task=task, needs_pod=needs_pod) as context,
    ):
        cluster, request = context.cluster, add_origin(request, context.pod)
        requested_namespace = namespace or (request.namespace if isinstance(request, TrainJobManifest) else "")
        ends_with_run = on_kill != "keep" or read_has_cleanup(context.own_cluster, context.pod)
        owner_reference = choose_owner(
            context.pod,
            requested_namespace or cluster.namespace,
            same_cluster=context.own_cluster is cluster,
            may_outlive_run=not ends_with_run,
            delete_with_run=delete_with_run,
        )
        with _keep_condition(on_kill, context, ends_with_run=ends_with_run) as keep:
            terminator.set_keep_condition(keep)
            guard, action = JobGuard(), "keep" if on_kill == "keep" else "delete"
            step = _StepRun(
                request,
                context,
                terminator,
                guard,
                RunOwner(cluster, owner_reference, after_end=delete_with_run),
                namespace,
                Limits.of(request),
                _Callbacks(on_progress, on_line, on_attempt),
            )
            with apply_kill_action_on_error(guard, cluster, context.key, requested_namespace, action, print_line):
                _, outcome = run_attempts(
                    step.submit,
                    step.follow,
                    step.pause,
                    interruption_retries=request.interruption_retries,
                    attempts=int(attempts),  # the input of KFP's executor (2.17) has numbers as floats
                )
    outcome.raise_for_failure()
    return outcome


def list_launch_problems(arguments: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the arguments of [launch][], of which some may be missing."""
    attempts, on_kill = arguments.get("attempts", 1), arguments.get("on_kill", "delete")
    problems = []
    if type(attempts) is bool or not isinstance(attempts, int | float) or attempts < 1 or attempts % 1:
        problems.append(Problem("attempts", repr(attempts), "it must be an integer of at least 1"))
    if on_kill not in get_args(OnKill):
        problems.append(Problem("on_kill", repr(on_kill), f"allowed are {', '.join(get_args(OnKill))}"))
    return problems


@dataclass(frozen=True)
class _Callbacks:
    """Functions of the caller of [launch][]."""

    on_progress: Callable[[Progress], None]
    on_line: Callable[[LogLine], None]
    on_attempt: Callable[[int], None]


@dataclass(frozen=True)
class _StepRun:
    """Attempts of a step within a launcher; see [launch][]."""

    request: Step
    context: _LauncherContext
    terminator: Terminator
    guard: JobGuard
    owner: RunOwner
    namespace: str
    limits: Limits
    callbacks: _Callbacks

    def submit(self, earlier: Resubmission | None) -> JobReference:
        """Submit or adopt the TrainJob of an attempt; see [trainjob.lifecycle.run_attempts][]."""
        self.terminator.begin_submission()
        with self.guard.guard_submission():
            reference = self.guard.reference = submit(
                self.context.cluster,
                self.request,
                self.context.key,
                namespace=self.namespace,
                earlier=earlier,
                before_create=self._note_creation,
                owner=self.owner.reference,
                on_notice=print_line,
            )
        informer = self.context.cluster.trainjob_informer(reference.namespace)
        self.terminator.set_reference(reference, lambda: informer.find(reference.name, reference.uid))
        if reference.adopted:
            self.owner.add_to(reference)
        print_line(f"TrainJob {reference}: {'adopted' if reference.adopted else 'created'}, uid {reference.uid}")
        return reference

    def _note_creation(self, name: str, namespace: str) -> None:
        self.terminator.note_creation(name, namespace)
        self.guard.record_creation(name, namespace)

    def follow(self, reference: JobReference) -> Outcome:
        """Wait until the TrainJob has ended, and return its outcome."""
        context = self.context
        self.callbacks.on_attempt(reference.failures + 1)
        written_times = load_times(context.cluster, context.own_cluster, context.pod, reference)
        with (
            self.guard.guard_wait(),
            TimeStore(context.cluster, context.pod, reference, written_times) as store,
            LogWriter().open(print_line, written_times.record) as log,
        ):
            store.set_log(log)
            self.terminator.set_last_work(store.store_at_signal)
            progress_log = ProgressLog(reference, log.report, log=log)
            listener = _build_listener(progress_log.listener, self.terminator, self.callbacks)
            outcome = wait(
                context.cluster, reference, limits=self.limits, listener=listener, written_times=written_times
            )
        self.owner.remove_from(reference)
        return outcome

    def pause(self, resubmission: Resubmission) -> None:
        """Report the next attempt and wait; a signal then ends the launcher at once."""
        self.terminator.begin_pause()
        print_line(resubmission.notice)
        self.terminator.pause(resubmission.pause)


def clean_up(
    *, namespace: str = "", finished: bool = False, connection: Connection | None = None, key: RunKey | None = None
) -> list[str]:
    """Delete the active TrainJobs of all tasks of this pipeline run; for an exit handler.

    One line on standard output reports each TrainJob.

    Args:
        namespace: namespace of the TrainJobs; empty means the launcher's own.
        finished: whether to delete finished TrainJobs, too. Export their results first.
        connection: how to reach the cluster; see [launch][].
        key: run key of any task of the run; see [launch][].

    Returns:
        The names of the deleted TrainJobs.

    Raises:
        ClusterError: the cluster cannot be reached, or TrainJobs could not be deleted. The others were deleted before.
    """
    with _open_context(connection or Connection(), key, task="clean-up") as context:
        deleted, failures = [], []
        for job in _list_jobs_of_run(context.cluster, context.key, namespace or context.cluster.namespace):
            reference, verdict = reference_to(job, adopted=True), derive_verdict(job)
            if verdict.phase.finished and not finished:
                continue
            try:
                end = cancel(context.cluster, reference, known=job, ignore_end=finished)
            except ClusterError as error:
                failures.append(error)
                result = f"was not deleted: {error.message}"
            else:
                deleted += [] if end.had_finished else [reference.name]
                result = end.text.removeprefix("it ")
            print_line(f"TrainJob {reference} {result}; its phase was {verdict.phase.value}")
    if failures:
        raise failures[0]
    return deleted


def _list_jobs_of_run(cluster: Cluster, key: RunKey, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield the TrainJobs of this pipeline run.

    The label selector finds candidates, because label values are truncated. The annotation with the run key is exact.
    """
    parts = {"engine": key.engine, "workflow": key.workflow, "run": key.run}
    selector = ",".join(f"{labels.PREFIX}/{part}={labels.label_value(text)}" for part, text in parts.items())
    for job in cluster.list_trainjobs(namespace, selector):
        known = run_key_of(job)
        if known and (known.engine, known.workflow, known.run) == (key.engine, key.workflow, key.run):
            yield job


@dataclass(frozen=True)
class _LauncherContext:
    """Clients, own pod and run key of this launcher.

    Attributes:
        cluster: client of the cluster that runs the TrainJob.
        own_cluster: client of the cluster that runs the launcher's pod.
        pod: the launcher's pod; None if it was not read.
        key: run key of the step.
    """

    cluster: Cluster
    own_cluster: Cluster
    pod: Mapping[str, Any] | None
    key: RunKey


@contextlib.contextmanager
def _open_context(
    connection: Connection, key: RunKey | None, *, task: str, needs_pod: bool = False
) -> Iterator[_LauncherContext]:
    """Open the clusters, and read the launcher's own pod at most once.

    The TrainJob usually runs in the cluster of the launcher's pod. Both clients are then the same object.
    """
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster(connection)))
        own_cluster = get_own_cluster(cluster, connection)
        if own_cluster is not cluster:
            stack.callback(own_cluster.close)
        pod = get_own_pod(own_cluster) if needs_pod or key is None else None
        yield _LauncherContext(cluster, own_cluster, pod, key or get_own_run_key(pod, task=task))


@contextlib.contextmanager
def _keep_condition(on_kill: str, context: _LauncherContext, *, ends_with_run: bool) -> Iterator[Callable[[], bool]]:
    """Yield a function for a signal, which returns whether to keep the TrainJob."""
    if on_kill == "keep_on_drain" and context.pod is not None:
        with OwnPodWatch(context.own_cluster, context.pod) as watched:
            yield watched.is_being_removed
    elif on_kill == "keep" and ends_with_run and context.pod is not None:
        with TerminationCheck(context.own_cluster, context.pod) as check:
            yield lambda: not check.is_being_terminated()
    else:
        yield lambda: on_kill == "keep"


def _build_listener(listener: Listener, terminator: Terminator, callbacks: _Callbacks) -> Listener:
    """Return a listener that notifies the progress log, the terminator and the caller.

    No signal deletes a finished TrainJob, because it is a record of what happened and a later try adopts it.
    """

    def on_phase(verdict: Verdict) -> None:
        if verdict.phase.finished:
            terminator.mark_finished()
        listener.on_phase(verdict)

    def on_log(line: LogLine) -> None:
        if not line.frame:
            callbacks.on_line(line)
        listener.on_log(line)

    def report_progress(progress: Progress) -> None:
        listener.on_progress(progress)
        callbacks.on_progress(progress)

    return Listener(on_phase, on_log, report_progress, listener.on_warning, on_earlier_progress=callbacks.on_progress)


class ExitOnError:
    """A context manager that ends the process with a message and an exit code.

    There is no traceback. The codes are those of [trainjob.errors.ExitCode][]. The runners of `kfp.local` and plain
    pods show them. On a cluster, KFP 2.17's launcher replaces every failure's code by 1
    (backend/src/v2/cmd/launcher-v2/main.go), so that only the message distinguishes failures there.
    """

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process after a `TrainJobError`; other errors are bugs and keep their traceback.

        Raises:
            SystemExit: an error of `trainjob.errors` was raised; it has the exit code.
        """
        if isinstance(error, TrainJobError):
            sys.stdout.flush()
            message = escape_control_characters(str(error))  # may contain the last lines of a log
            print(f"{_ERROR_PREFIXES[error.exit_code]}\n{message}", file=sys.stderr, flush=True)
            raise SystemExit(error.exit_code) from error

"""Submission of one TrainJob, and waiting until it has ended.

`trainjob run` uses it, and other commands that own a TrainJob for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from rich.console import Console

from trainjob.cli import terminal
from trainjob.cli.interruption import Interrupted, Interruption
from trainjob.cli.progress_output import ProgressOutput
from trainjob.cli.request_file import UserRequest
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.lifecycle import (
    JobReference,
    Limits,
    Resubmission,
    run_attempts,
    submit,
    wait_async,
)
from trainjob.lifecycle.cancellation import cancel
from trainjob.lifecycle.job_guard import JobGuard, apply_kill_action_on_error
from trainjob.status import Outcome
from trainjob.threads import run_on_thread

OnSubmitted = Callable[[JobReference, ProgressOutput, Interruption], None]
"""Function that is called with each submitted TrainJob, before the wait for it."""


class StartOver(Exception):
    """Interruption after which the caller submits another request of the same run key.

    The TrainJob is left as it is, because the next submission replaces it.

    Attributes:
        request: the other request.
    """

    def __init__(self, request: UserRequest) -> None:
        super().__init__("another request replaces the TrainJob")
        self.request = request


def follow(
    cluster: Cluster,
    request: UserRequest,
    namespace: str,
    console: Console,
    *,
    interruption_retries: int | None = None,
    keep_colors: bool = False,
    on_submitted: OnSubmitted | None = None,
) -> Outcome:
    """Submit or adopt a TrainJob, and report its progress until it has ended.

    Ctrl-C and SIGTERM apply the TrainJob's `on_kill` action: by default it is deleted, unless it has ended. An
    unexpected error before the end of the wait does the same. If the console's reader is gone, or after SIGKILL, the
    TrainJob continues. Running the same command again adopts it.

    Args:
        cluster: the cluster.
        request: the request and its run key.
        namespace: the TrainJob's namespace; empty means the request's own, or the connection's.
        console: console for the reports.
        interruption_retries: how often another attempt starts after the infrastructure has interrupted the TrainJob;
            None means the number of the request.
        keep_colors: whether the colors of log lines stay.
        on_submitted: see [OnSubmitted][].

    Returns:
        The outcome, also of a failed TrainJob.

    Raises:
        InvalidSpec: the request cannot be expressed; nothing was sent.
        Interrupted: a signal ended the command; what happened to the TrainJob was reported.
        StartOver: the reason with which `on_submitted`, or what it has started, interrupted the wait.
        BrokenPipeError: the reader of the console is gone.
        ClusterError: the cluster cannot be reached or refuses.
    """
    follower = _JobFollower(
        cluster,
        request,
        namespace,
        console,
        interruption_retries=interruption_retries,
        keep_colors=keep_colors,
        on_submitted=on_submitted,
    )
    return asyncio.run(follower.run())


class _JobFollower:
    def __init__(
        self,
        cluster: Cluster,
        request: UserRequest,
        namespace: str,
        console: Console,
        *,
        interruption_retries: int | None,
        keep_colors: bool,
        on_submitted: OnSubmitted | None,
    ) -> None:
        self._cluster, self._request, self._namespace, self._console = cluster, request, namespace, console
        given = request.request.interruption_retries if interruption_retries is None else interruption_retries
        self._interruption_retries, self._keep_colors, self._guard = given, keep_colors, JobGuard()
        self._on_submitted = on_submitted

    async def run(self) -> Outcome:
        """Submit or adopt the TrainJob and wait until it has ended; see [follow][]."""
        interruption = Interruption()
        interruption.handle_signals(self._print_signal_notice)
        loop, on_kill = asyncio.get_running_loop(), self._request.request.on_kill
        ended = apply_kill_action_on_error(
            self._guard,
            self._cluster,
            self._request.key,
            self._namespace,
            on_kill,
            lambda line: terminal.error_console().print(escape(line)),
            ignored_errors=(Interrupted, BrokenPipeError, StartOver),
        )
        try:
            with ended, ProgressOutput(self._console, interruption, keep_colors=self._keep_colors) as output:

                def follow(reference: JobReference) -> Outcome:
                    waiting = interruption.run(self._wait(reference, output))
                    return asyncio.run_coroutine_threadsafe(waiting, loop).result()

                _, outcome = await run_on_thread(
                    run_attempts,
                    partial(self._submit, interruption, output),
                    follow,
                    lambda resubmission: output.print_line(resubmission.notice),
                    interruption_retries=self._interruption_retries,
                )
                if outcome.succeeded:  # after the last log lines; the caller reports a failure
                    duration = f" after {outcome.seconds:.0f} s" if outcome.seconds else ""
                    output.print_line(outcome.explain() + duration)
                return outcome
        except Interrupted:
            if known := self._guard.reference:
                end = await run_on_thread(cancel, self._cluster, known, on_kill)
                terminal.error_console().print(f"TrainJob {escape(str(known))}: {escape(end.text)}")
            raise

    def _submit(self, interruption: Interruption, output: ProgressOutput, earlier: Resubmission | None) -> JobReference:
        def before_create(name: str, namespace: str) -> None:
            if interruption.reason:
                raise interruption.reason
            self._guard.record_creation(name, namespace)

        with self._guard.guard_submission(), self._request.locate_errors():
            reference = self._guard.reference = submit(
                self._cluster,
                self._request.request,
                self._request.key,
                namespace=self._namespace,
                renewal=self._request.renewal,
                earlier=earlier,
                before_create=before_create,
                on_notice=print_notice,
            )
        output.print_line(describe_submission(reference))
        if self._on_submitted:
            self._on_submitted(reference, output, interruption)
        return reference

    async def _wait(self, reference: JobReference, output: ProgressOutput) -> Outcome:
        with self._guard.guard_wait():
            limits, listener = Limits.of(self._request.request), output.create_listener(reference)
            return await wait_async(self._cluster, reference, limits=limits, listener=listener)

    def _print_signal_notice(self) -> None:
        job = f"TrainJob {self._guard.reference}" if self._guard.reference else "the TrainJob that is being created"
        again = "interrupt again to leave it as it is and exit at once"
        terminal.error_console().print(f"[yellow]interrupted: ending {escape(job)}; {again}[/]")


def print_notice(notice: str) -> None:
    """Print a log line of a submission to the error stream."""
    terminal.error_console().print(escape(notice))


def describe_submission(reference: JobReference) -> str:
    """Return a sentence that says whether a TrainJob was created or adopted."""
    return f"TrainJob {reference}: {'adopted, because it already existed' if reference.adopted else 'created'}"

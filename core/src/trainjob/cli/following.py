"""Submission of one TrainJob, and waiting until it has ended.

`trainjob run` uses it, and other commands that own a TrainJob for a while.
"""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.markup import escape

from trainjob.cli import terminal
from trainjob.cli.asking import Asked
from trainjob.cli.halting import Halt, Stopped
from trainjob.cli.story import Story
from trainjob.client import Cluster
from trainjob.lifecycle import JobReference, Limits, OnTimeout, reattempt_notice, submit, wait_async
from trainjob.lifecycle.cancellation import give_up_unless_ended
from trainjob.lifecycle.unattended import JobGuard, ended_after_errors
from trainjob.manifest import train_job
from trainjob.status import Outcome


def follow(cluster: Cluster, asked: Asked, namespace: str, console: Console) -> Outcome:
    """Submit or adopt a TrainJob, and report its progress until it has ended.

    Ctrl-C and SIGTERM apply the TrainJob's `on_kill` action: by default it is deleted, unless it has ended. An
    unexpected error before the end of the wait does the same. If the console's reader is gone, or after SIGKILL, the
    TrainJob continues. Running the same command again adopts it.

    Args:
        cluster: the cluster.
        asked: the request and its run key.
        namespace: the TrainJob's namespace; empty means the request's own, or the connection's.
        console: console for the reports.

    Returns:
        The outcome, also of a failed TrainJob.

    Raises:
        InvalidSpec: the request cannot be expressed; nothing was sent.
        Stopped: a signal ended the command; what happened to the TrainJob was reported.
        BrokenPipeError: the reader of the console is gone.
        ClusterError: the cluster cannot be reached or refuses.
    """
    return asyncio.run(_Following(cluster, asked, namespace, console).to_the_end())


class _Following:
    def __init__(self, cluster: Cluster, asked: Asked, namespace: str, console: Console) -> None:
        self._cluster, self._asked, self._namespace, self._console = cluster, asked, namespace, console
        self._guard = JobGuard()

    async def to_the_end(self) -> Outcome:
        """Run until the TrainJob has ended; see [follow][]."""
        halt = Halt()
        halt.on_signals(self._tell_of_signal)
        job = train_job(self._asked.request)
        limits = Limits(max_restarts=job.max_restarts, on_failure=OnTimeout(job.on_failure))
        ended = ended_after_errors(
            self._guard,
            self._cluster,
            self._asked.key,
            self._namespace,
            job.on_kill,
            lambda line: terminal.errors().print(escape(line)),
            unless=(Stopped, BrokenPipeError),
        )
        try:
            with ended, Story(self._console, halt) as story:
                reference, outcome = await self._attempt(halt, story, limits)
                while notice := reattempt_notice(reference, outcome):
                    story.tell(notice)
                    reference, outcome = await self._attempt(halt, story, limits)
                if outcome.succeeded:  # after the last log lines; the caller reports a failure
                    story.tell(outcome.explain() + (f" after {outcome.seconds:.0f} s" if outcome.seconds else ""))
                return outcome
        except Stopped:
            if known := self._guard.reference:
                became = await asyncio.to_thread(give_up_unless_ended, self._cluster, known, job.on_kill)
                terminal.errors().print(f"TrainJob {escape(str(known))}: {escape(became)}")
            raise

    async def _attempt(self, halt: Halt, story: Story, limits: Limits) -> tuple[JobReference, Outcome]:
        with self._guard.submitting():
            reference = await asyncio.to_thread(self._submit, halt)
            self._guard.reference = reference
        story.tell(told(reference))
        with self._guard.waiting():
            waiting = wait_async(self._cluster, reference, limits=limits, listener=story.of(reference))
            return reference, await halt.unless(waiting)

    def _submit(self, halt: Halt) -> JobReference:
        def still_wanted(name: str, namespace: str) -> None:
            if halt.reason:
                raise halt.reason
            self._guard.note_creation(name, namespace)

        asked = self._asked
        return submit(
            self._cluster,
            asked.request,
            asked.key,
            namespace=self._namespace,
            renewal=asked.renewal,
            before_create=still_wanted,
        )

    def _tell_of_signal(self) -> None:
        about = f"TrainJob {self._guard.reference}" if self._guard.reference else "the TrainJob that is being made"
        again = "once more leaves it as it is and ends at once"
        terminal.errors().print(f"[yellow]interrupted: ending {escape(about)}; {again}[/]")


def told(reference: JobReference) -> str:
    """Return a sentence that says whether a TrainJob was created or adopted."""
    return f"TrainJob {reference}: {'was there already: taken over' if reference.adopted else 'created'}"

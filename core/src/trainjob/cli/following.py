"""Having one TrainJob work and following it to its end: what `trainjob run` does, and who else owns one for a while."""

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
    """Submit, or take over what is at work, and tell all that happens until it has ended.

    Ctrl-C and SIGTERM end the TrainJob as its `on_kill` says: by default it is deleted, unless it has ended. So does an
    unexpected error before the wait has ended. A reader of the console that is gone, and SIGKILL, leave it alone; the
    same again takes it over.

    Args:
        cluster: where.
        asked: what, and for whom.
        namespace: where; empty means the request's own, or the connection's.
        console: where to tell it.

    Returns:
        How it ended, also when it failed.

    Raises:
        InvalidSpec: the request can't be expressed; nothing was sent.
        Stopped: by a signal; what became of the TrainJob was told.
        BrokenPipeError: nobody reads what is told.
        ClusterError: the cluster can't be asked.
    """
    return asyncio.run(_Following(cluster, asked, namespace, console).to_the_end())


class _Following:
    def __init__(self, cluster: Cluster, asked: Asked, namespace: str, console: Console) -> None:
        self._cluster, self._asked, self._namespace, self._console = cluster, asked, namespace, console
        self._guard = JobGuard()

    async def to_the_end(self) -> Outcome:
        """See [follow][]."""
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
                if outcome.succeeded:  # behind the last log lines; a failure is the caller's to tell
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
    """How a TrainJob was come by, as words."""
    return f"TrainJob {reference}: {'was there already: taken over' if reference.adopted else 'created'}"

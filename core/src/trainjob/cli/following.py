"""Having one TrainJob work and following it to its end: what `trainjob run` does, and who else owns one for a while."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.markup import escape

from trainjob.cli import terminal
from trainjob.cli.asking import Asked
from trainjob.cli.halting import Halt, Stopped
from trainjob.cli.story import Story
from trainjob.cluster import Cluster
from trainjob.manifest import train_job
from trainjob.run import JobReference, Limits, OnTimeout, cancel_at_work, give_up, submit, wait_async
from trainjob.status import Outcome, Phase


def follow(cluster: Cluster, asked: Asked, namespace: str, console: Console) -> Outcome:
    """Submit, or take over what is at work, and tell all that happens until it has ended.

    Ctrl-C and SIGTERM end the TrainJob as its `on_kill` says: by default it is deleted, unless it has ended. A reader
    of the console that is gone, and SIGKILL, leave it alone; the same again takes it over.

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
        self._reference: JobReference | None = None

    async def to_the_end(self) -> Outcome:
        """See [follow][]."""
        halt = Halt()
        halt.on_signals(self._tell_of_signal)
        job = train_job(self._asked.request)
        limits = Limits(max_restarts=job.max_restarts, on_failure=OnTimeout(job.on_failure))
        try:
            with Story(self._console, halt) as story:
                reference = self._reference = await asyncio.to_thread(self._submit, halt)
                story.tell(told(reference))
                waiting = wait_async(self._cluster, reference, limits=limits, listener=story.of(reference))
                outcome = await halt.unless(waiting)
                if outcome.succeeded:  # behind the last log lines; a failure is the caller's to tell
                    story.tell(outcome.explain() + (f" after {outcome.seconds:.0f} s" if outcome.seconds else ""))
                return outcome
        except Stopped:
            if self._reference is not None:
                became = await asyncio.to_thread(_end, self._cluster, self._reference, job.on_kill)
                terminal.errors().print(f"TrainJob {escape(str(self._reference))}: {escape(became)}")
            raise

    def _submit(self, halt: Halt) -> JobReference:
        def still_wanted(*_: str) -> None:
            if halt.reason:
                raise halt.reason

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
        about = f"TrainJob {self._reference}" if self._reference else "the TrainJob that is being made"
        again = "once more leaves it as it is and ends at once"
        terminal.errors().print(f"[yellow]interrupted: ending {escape(about)}; {again}[/]")


def told(reference: JobReference) -> str:
    """How a TrainJob was come by, as words."""
    return f"TrainJob {reference}: {'was there already: taken over' if reference.adopted else 'created'}"


def _end(cluster: Cluster, reference: JobReference, on_kill: str) -> str:
    """What became of a TrainJob whose follower was told to end; one that has ended is a record, and stays."""
    if on_kill != "delete":
        return give_up(cluster, reference, on_kill)
    phase = cancel_at_work(cluster, reference).phase
    if phase is Phase.DELETED:
        return "it was gone already"
    return f"it is {phase.value} and stays" if phase.finished else "it was deleted"

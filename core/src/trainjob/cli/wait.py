"""`trainjob wait`: wait until TrainJobs have ended, whichever tool created them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.halting import Halt
from trainjob.cli.named import NAMES, references
from trainjob.cli.story import Story
from trainjob.client import Cluster
from trainjob.errors import ExitCode, TrainJobError, WaitTimeout
from trainjob.lifecycle import JobReference, JobSelector, wait_external
from trainjob.manifest.durations import duration
from trainjob.status import Outcome

__all__ = ["wait"]

_TIMEOUT = typer.Option(help="Stop waiting after this long: 90s, 30m, 12h, 7d.", show_default=False)


def wait(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    timeout: Annotated[str, _TIMEOUT] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Wait until all of these TrainJobs have ended, and tell their phases on the way; nothing is done to them.

    The exit code is 3 when one of them failed, else 4 when the time was over for one.

    `--json` prints a list in the order of the names: for each its outcome, or, when the time was over, an object with
    `job`, `namespace`, `error` and `message`; phases are told on standard error.

    Args:
        names: which, whoever made them.
        namespace: of those that name none; empty for the kubeconfig's own.
        timeout: a duration, or empty.
        as_json: print outcomes.

    Raises:
        InvalidSpec: the duration is none.
        NotFound: one of them does not exist.
        ClusterError: the cluster can't be asked.
    """
    total = duration(timeout, "--timeout") if timeout else None
    console = terminal.errors() if as_json else terminal.console()
    with terminal.cluster() as cluster:
        wanted = references(cluster, names, namespace)

        async def all_of_them() -> list[Outcome | WaitTimeout]:
            halt = Halt()
            with Story(console, halt) as story:
                return await halt.unless(_all(cluster, wanted, total, story.tell))

        ends = asyncio.run(all_of_them())
    if as_json:
        terminal.print_json([_told(one, end) for one, end in zip(wanted, ends, strict=True)])
    else:
        for end in ends:
            _explain(end)
    if code := _code(ends):
        raise typer.Exit(code)


async def _all(
    cluster: Cluster, wanted: Sequence[JobReference], total: timedelta | None, tell: Callable[[str], None]
) -> list[Outcome | WaitTimeout]:
    async def one(reference: JobReference) -> Outcome | WaitTimeout:
        place = JobSelector(reference.namespace, reference.name)
        try:
            ended = await wait_external(cluster, place, total=total, tell=tell)
        except WaitTimeout as timeout:
            return timeout
        tell(f"TrainJob {ended.reference}: {ended.outcome.phase.value}")
        return ended.outcome

    return await asyncio.gather(*map(one, wanted))


def _told(reference: JobReference, end: Outcome | WaitTimeout) -> dict[str, Any]:
    if isinstance(end, Outcome):
        return end.to_dict()
    place = {"job": reference.name, "namespace": reference.namespace}
    return {**place, "error": type(end).__name__, "message": end.message}


def _explain(end: Outcome | WaitTimeout) -> None:
    try:
        if isinstance(end, WaitTimeout):
            raise end
        end.raise_for_failure()
    except TrainJobError as error:
        terminal.tell_error(error, as_json=False)


def _code(ends: Sequence[Outcome | WaitTimeout]) -> int:
    if any(isinstance(end, Outcome) and not end.succeeded for end in ends):
        return ExitCode.JOB_FAILED
    return ExitCode.STILL_RUNNING if any(isinstance(end, WaitTimeout) for end in ends) else ExitCode.DONE

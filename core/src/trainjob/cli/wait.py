"""`trainjob wait`: wait until TrainJobs have ended, whichever tool created them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.interruption import Interruption
from trainjob.cli.job_lookup import NAMES, get_references
from trainjob.cli.progress_output import ProgressOutput
from trainjob.client import Cluster
from trainjob.errors import ExitCode, TrainJobError, WaitTimeout
from trainjob.lifecycle import JobReference, JobSelector, wait_external
from trainjob.manifest.durations import parse_duration
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
    total = parse_duration(timeout, "--timeout") if timeout else None
    console = terminal.error_console() if as_json else terminal.console()
    with terminal.open_cluster() as cluster:
        wanted = get_references(cluster, names, namespace)

        async def wait_with_output() -> list[Outcome | WaitTimeout]:
            halt = Interruption()
            with ProgressOutput(console, halt) as story:
                return await halt.run(_wait_for_all(cluster, wanted, total, story.print_line))

        ends = asyncio.run(wait_with_output())
    if as_json:
        terminal.print_json([_to_json(one, end) for one, end in zip(wanted, ends, strict=True)])
    else:
        for end in ends:
            _print_failure(end)
    if code := _exit_code(ends):
        raise typer.Exit(code)


async def _wait_for_all(
    cluster: Cluster, references: Sequence[JobReference], total: timedelta | None, report: Callable[[str], None]
) -> list[Outcome | WaitTimeout]:
    async def wait_for_one(reference: JobReference) -> Outcome | WaitTimeout:
        place = JobSelector(reference.namespace, reference.name)
        try:
            ended = await wait_external(cluster, place, timeout=total, report=report)
        except WaitTimeout as timeout:
            return timeout
        report(f"TrainJob {ended.reference}: {ended.outcome.phase.value}")
        return ended.outcome

    return await asyncio.gather(*map(wait_for_one, references))


def _to_json(reference: JobReference, result: Outcome | WaitTimeout) -> dict[str, Any]:
    if isinstance(result, Outcome):
        return result.to_dict()
    place = {"job": reference.name, "namespace": reference.namespace}
    return {**place, "error": type(result).__name__, "message": result.message}


def _print_failure(result: Outcome | WaitTimeout) -> None:
    try:
        if isinstance(result, WaitTimeout):
            raise result
        result.raise_for_failure()
    except TrainJobError as error:
        terminal.print_error(error, as_json=False)


def _exit_code(results: Sequence[Outcome | WaitTimeout]) -> int:
    if any(isinstance(end, Outcome) and not end.succeeded for end in results):
        return ExitCode.JOB_FAILED
    return ExitCode.STILL_RUNNING if any(isinstance(end, WaitTimeout) for end in results) else ExitCode.DONE

"""`trainjob wait`: wait until TrainJobs have ended, whichever tool created them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.interruption import Interruption
from trainjob.cli.job_lookup import NAMES, get_references
from trainjob.cli.progress_output import ProgressOutput
from trainjob.client import Cluster
from trainjob.errors import ClusterError, ExitCode, TrainJobError, WaitTimeout
from trainjob.inspection.description import describe
from trainjob.lifecycle import JobReference, JobSelector, wait_external
from trainjob.spec.durations import parse_duration
from trainjob.status import Outcome, derive_verdict
from trainjob.threads import run_on_thread

__all__ = ["wait"]

_TIMEOUT = typer.Option(
    metavar="DURATION",
    help="Stop waiting after this time, such as 90 (seconds), 90s, 30m, 12h or 7d.",
    show_default=False,
)
# The pods of most TrainJobs start within the first interval; later the reason rarely changes.
_FIRST_DIAGNOSIS_SECONDS, _DIAGNOSIS_SECONDS = 5.0, 30.0


def wait(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    timeout: Annotated[str, _TIMEOUT] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Wait until TrainJobs have ended.

    The command prints their phases and the reasons why they do not start, and changes nothing. It waits for any
    TrainJob, also one that another tool created. The exit code is 3 if one of them failed, otherwise 4 if the wait for
    one of them timed out.

    With --json: a list in the order of the names, with the outcome of each TrainJob. After a timeout, an entry has job,
    namespace, error, message and hint. Phases are on standard error.

    Example: trainjob wait tune-1a2b3c4d --timeout 6h
    """
    total = parse_duration(timeout, "--timeout", default_unit="s") if timeout else None
    console = terminal.error_console() if as_json else terminal.console()
    with terminal.open_cluster() as cluster:
        references = get_references(cluster, names, namespace)

        async def wait_with_output() -> list[Outcome | WaitTimeout]:
            interruption = Interruption()
            with ProgressOutput(console, interruption) as output:
                return await interruption.run(_wait_for_all(cluster, references, total, output.print_line))

        ends = asyncio.run(wait_with_output())
    if as_json:
        terminal.print_json([_to_json(one, end) for one, end in zip(references, ends, strict=True)])
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
        reasons = asyncio.create_task(_report_reasons(cluster, reference, report))
        try:
            ended = await wait_external(cluster, place, timeout=total, report=report)
        except WaitTimeout as timeout:
            timeout.hint = "; ".join(await run_on_thread(_find_reasons, cluster, reference))
            return timeout
        finally:
            reasons.cancel()
        report(f"TrainJob {ended.reference}: {ended.outcome.phase.value}")
        for warning in ended.outcome.warnings:
            report(f"TrainJob {ended.reference}: warning: {warning}")
        return ended.outcome

    return await asyncio.gather(*map(wait_for_one, references))


async def _report_reasons(cluster: Cluster, reference: JobReference, report: Callable[[str], None]) -> None:
    """Report why a TrainJob does not start, whenever the reason has changed.

    The reasons are those of `trainjob describe`.
    """
    await asyncio.sleep(_FIRST_DIAGNOSIS_SECONDS)
    last: list[str] = []
    while True:
        reasons = await run_on_thread(_find_reasons, cluster, reference)
        for reason in reasons:
            if reason not in last:
                report(f"TrainJob {reference}: {reason}")
        last = reasons
        await asyncio.sleep(_DIAGNOSIS_SECONDS)


def _find_reasons(cluster: Cluster, reference: JobReference) -> list[str]:
    """Return why an unfinished TrainJob does not run, with the remedies.

    The list is empty if the TrainJob or its pods cannot be read.
    """
    with contextlib.suppress(ClusterError):
        job = cluster.get_trainjob(reference.name, reference.namespace)
        if job and not derive_verdict(job).phase.finished:
            return describe(cluster, job).hints
    return []


def _to_json(reference: JobReference, result: Outcome | WaitTimeout) -> dict[str, Any]:
    if isinstance(result, Outcome):
        return result.to_dict()
    place = {"job": reference.name, "namespace": reference.namespace}
    return {**place, "error": type(result).__name__, "message": result.message, "hint": result.hint}


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

"""Terminal output about converted jobs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from trainjob.cli import cells
from trainjob_migrate import Fate, Line
from trainjob_migrate.report import Migrated, Survey

__all__ = ["COLORS", "tell_fields", "tell_findings", "tell_job", "tell_numbers", "tell_unread"]

COLORS = {Fate.CONVERTED: "green", Fate.MOVED: "cyan", Fate.DROPPED: "yellow", Fate.REFUSED: "bold red"}


def tell_job(console: Console, job: Migrated) -> None:
    """Print the readiness class of a job, or that it is refused and because of which fields."""
    conversion = job.conversion
    verdict = "[bold red]refused[/]" if conversion.blockers else f"[green]{conversion.readiness.value}[/]"
    console.print(f"[bold]{escape(str(job))}[/] {verdict} {escape(job.origin)}")
    for line in conversion.blockers:
        console.print(f"  [bold red]refused[/] {escape(line.path)}: {escape(line.reason)}")


def tell_findings(console: Console, job: Migrated) -> None:
    """Print the findings of a job, which the user should read before the job runs."""
    for finding in job.conversion.findings:
        console.print(f"  [yellow]{escape(finding.topic)}[/] {escape(finding.what)}")
        console.print(f"    {escape(finding.why)}", f"    [bold]->[/] {escape(finding.done)}", sep="\n")


def tell_fields(console: Console, job: Migrated) -> None:
    """Print the fate of each field, on two lines because paths are long."""
    for line in job.conversion.lines:
        console.print(f"  [{COLORS[line.fate]}]{line.fate.value:<9}[/] {escape(line.path)}: {escape(line.given)}")
        if told := where_now(line):
            console.print(f"            {escape(told)}")


def where_now(line: Line) -> str:
    """Return the new place of a field and the reason; empty if neither needs to be stated."""
    target = f"-> {line.target}" if line.target else ""
    return f"{target} ({line.reason})" if target and line.reason else target or line.reason


def tell_unread(console: Console, told: Survey) -> None:
    """Print the documents that could not be read."""
    for one in told.unread:
        console.print(f"[bold red]unread[/] {escape(one.origin)}: {escape(one.reason)}")


def tell_numbers(console: Console, told: Survey) -> None:
    """Print why jobs are refused, then the numbers of all jobs on one line."""
    for reason, names in told.blockers():
        console.print(f"[bold red]refused[/] {len(names)}: {escape(reason)}")
    console.print(escape(cells.words(_numbers(told))))


def _numbers(told: Survey) -> Iterator[str]:
    yield f"{len(told.jobs)} job{'' if len(told.jobs) == 1 else 's'}"
    yield from (f"{count} {readiness.value}" for readiness, count in told.classes().items())
    yield f"{len(told.refused)} refused"
    if told.unread:
        yield f"{len(told.unread)} could not be read"
    if told.others:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(told.others.items()))
        yield f"{sum(told.others.values())} of other kinds passed by ({kinds})"

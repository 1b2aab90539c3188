"""Terminal output about converted jobs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from trainjob.cli import table_format
from trainjob_migrate import FieldRecord, FieldResult
from trainjob_migrate.report import ConvertedJob, MigrationReport

__all__ = ["COLORS", "print_fields", "print_findings", "print_job", "print_totals", "print_unread"]

COLORS = {
    FieldResult.CONVERTED: "green",
    FieldResult.MOVED: "cyan",
    FieldResult.DROPPED: "yellow",
    FieldResult.REFUSED: "bold red",
}


def print_job(console: Console, job: ConvertedJob) -> None:
    """Print the readiness class of a job, or that it is refused and because of which fields."""
    conversion = job.conversion
    verdict = "[bold red]refused[/]" if conversion.blockers else f"[green]{conversion.readiness.value}[/]"
    console.print(f"[bold]{escape(str(job))}[/] {verdict} {escape(job.origin)}")
    for line in conversion.blockers:
        console.print(f"  [bold red]refused[/] {escape(line.path)}: {escape(line.reason)}")


def print_findings(console: Console, job: ConvertedJob) -> None:
    """Print the findings of a job, which the user should read before the job runs."""
    for finding in job.conversion.findings:
        console.print(f"  [yellow]{escape(finding.topic)}[/] {escape(finding.what)}")
        console.print(f"    {escape(finding.why)}", f"    [bold]->[/] {escape(finding.done)}", sep="\n")


def print_fields(console: Console, job: ConvertedJob) -> None:
    """Print the fate of each field, on two lines because paths are long."""
    for line in job.conversion.lines:
        console.print(f"  [{COLORS[line.fate]}]{line.fate.value:<9}[/] {escape(line.path)}: {escape(line.given)}")
        if told := format_new_place(line):
            console.print(f"            {escape(told)}")


def format_new_place(line: FieldRecord) -> str:
    """Return the new place of a field and the reason; empty if neither needs to be stated."""
    target = f"-> {line.target}" if line.target else ""
    return f"{target} ({line.reason})" if target and line.reason else target or line.reason


def print_unread(console: Console, report: MigrationReport) -> None:
    """Print the documents that could not be read."""
    for one in report.unread:
        console.print(f"[bold red]unread[/] {escape(one.origin)}: {escape(one.reason)}")


def print_totals(console: Console, report: MigrationReport) -> None:
    """Print why jobs are refused, then the numbers of all jobs on one line."""
    for reason, names in report.group_blockers():
        console.print(f"[bold red]refused[/] {len(names)}: {escape(reason)}")
    console.print(escape(table_format.join_words(_numbers(report))))


def _numbers(report: MigrationReport) -> Iterator[str]:
    yield f"{len(report.jobs)} job{'' if len(report.jobs) == 1 else 's'}"
    yield from (f"{count} {readiness.value}" for readiness, count in report.count_by_readiness().items())
    yield f"{len(report.refused)} refused"
    if report.unread:
        yield f"{len(report.unread)} could not be read"
    if report.skipped:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.skipped.items()))
        yield f"{sum(report.skipped.values())} of other kinds passed by ({kinds})"

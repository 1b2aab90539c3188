"""Terminal output about converted jobs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from trainjob.cli import table_format
from trainjob.cli.terminal import escape
from trainjob_migrate import FieldRecord, FieldResult
from trainjob_migrate.report import ConvertedJob, MigrationReport

__all__ = ["COLORS", "print_fields", "print_findings", "print_job", "print_read_errors", "print_totals"]

COLORS = {
    FieldResult.CONVERTED: "green",
    FieldResult.MOVED: "cyan",
    FieldResult.DROPPED: "yellow",
    FieldResult.REFUSED: "bold red",
}


def print_job(console: Console, job: ConvertedJob) -> None:
    """Print the readiness class of a job, or the fields because of which it is refused."""
    conversion = job.conversion
    color = "bold red" if conversion.blockers else "green"
    console.print(f"[bold]{escape(str(job))}[/] [{color}]{conversion.verdict}[/] {escape(job.origin)}")
    for record in conversion.blockers:
        place = f"{job.document.locate(record.path)}: {record.path}" if job.document else record.path
        console.print(f"  [bold red]refused[/] {escape(place)}: {escape(record.reason)}")


def print_findings(console: Console, job: ConvertedJob) -> None:
    """Print the findings of a job, which the user should read before the job runs."""
    for finding in job.conversion.findings:
        console.print(f"  [yellow]{escape(finding.topic)}[/] {escape(finding.what)}")
        console.print(f"    {escape(finding.why)}", f"    [bold]->[/] {escape(finding.done)}", sep="\n")


def print_fields(console: Console, job: ConvertedJob) -> None:
    """Print the result of each field, on two lines because paths are long."""
    for record in job.conversion.fields:
        console.print(
            f"  [{COLORS[record.result]}]{record.result.value:<9}[/] {escape(record.path)}: {escape(record.given)}"
        )
        if place := format_new_place(record):
            console.print(f"            {escape(place)}")


def format_new_place(record: FieldRecord) -> str:
    """Return the new place of a field and the reason; empty if neither needs to be stated."""
    target = f"-> {record.target}" if record.target else ""
    return f"{target} ({record.reason})" if target and record.reason else target or record.reason


def print_read_errors(console: Console, report: MigrationReport) -> None:
    """Print the documents that could not be read."""
    for one in report.read_errors:
        console.print(f"[bold red]cannot read[/] {escape(one.origin)}: {escape(one.reason)}")


def print_totals(console: Console, report: MigrationReport) -> None:
    """Print why jobs are refused, then the numbers of all jobs on one line."""
    for reason, names in report.group_blockers():
        console.print(f"[bold red]refused[/] {len(names)}: {escape(reason)}")
    console.print(escape(table_format.join_words(_numbers(report))))


def _numbers(report: MigrationReport) -> Iterator[str]:
    yield f"{len(report.jobs)} job{'' if len(report.jobs) == 1 else 's'}"
    yield from (f"{count} {readiness.value}" for readiness, count in report.count_by_readiness().items())
    yield f"{len(report.refused)} refused"
    if report.read_errors:
        yield f"{len(report.read_errors)} could not be read"
    if report.skipped:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.skipped.items()))
        yield f"{sum(report.skipped.values())} objects of other kinds skipped ({kinds})"

"""`trainjob migrate diff`: the fields of old and new jobs side by side."""

from __future__ import annotations

import os
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainjob.cli import terminal
from trainjob.cli.terminal import escape
from trainjob.errors import ExitCode
from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, Launch
from trainjob_migrate.cli import output, sources
from trainjob_migrate.field_pairs import FieldPair, pairs
from trainjob_migrate.report import ConvertedJob

__all__ = ["diff", "set_table_width"]

_PLAIN_WIDTH = 100  # columns, if the output is not a terminal and COLUMNS is not set


def diff(
    paths: Annotated[list[str], sources.PATHS],
    launch: Annotated[Launch, sources.LAUNCH] = Launch.ENVIRONMENT,
    dialect: Annotated[Dialect, sources.DIALECT] = Dialect.V2_2,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show the fields of v1 jobs and of their TrainJobs side by side.

    With --json: a list with origin, job and fields for each job. Each field has part, before, after and result.
    `result` is "converted", "moved", "dropped" or "refused", and null for fields that only the TrainJob has.
    """
    report = sources.convert_sources(paths, dialect=dialect, launch=launch)
    if as_json:
        terminal.print_json([_to_json(job) for job in report.jobs])
    else:
        console = set_table_width(terminal.console())
        for job in report.jobs:
            console.print(f"[dim]{escape(job.origin)}[/]")
            console.print(_table(job))
    output.print_read_errors(terminal.error_console(), report)
    if report.read_errors:
        raise typer.Exit(ExitCode.INVALID_REQUEST)


def set_table_width(console: Console) -> Console:
    """Set the width of a console that is not a terminal, for tables with wrapped cells.

    The environment variable COLUMNS takes precedence.

    Returns:
        The same console.
    """
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    return console


def _to_json(job: ConvertedJob) -> dict[str, object]:
    fields = [
        {"part": pair.part, "before": pair.before, "after": pair.after, "result": pair.result and pair.result.value}
        for pair in pairs(job.conversion)
    ]
    return {"origin": job.origin, "job": str(job), "fields": fields}


def _table(job: ConvertedJob) -> Table:
    train_job = job.conversion.train_job
    after = f"TrainJob {train_job['metadata']['name']}" if train_job else "no TrainJob: the job is refused"
    table = Table(box=None, pad_edge=False, expand=True)
    for title in (str(job), after):
        table.add_column(escape(title), ratio=1, overflow="fold")
    for part, fields in groupby(pairs(job.conversion), key=lambda pair: pair.part):
        if part:
            table.add_row(f"[bold]{escape(part)}[/]", "")
        for pair in fields:
            table.add_row(escape(f"  {pair.before}" if part else pair.before), _colored(pair))
    return table


def _colored(pair: FieldPair) -> str:
    color = (
        output.COLORS[pair.result]
        if pair.result in (FieldResult.DROPPED, FieldResult.REFUSED, FieldResult.MOVED)
        else ""
    )
    return f"[{color}]{escape(pair.after)}[/]" if color else escape(pair.after)

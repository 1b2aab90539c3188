"""`trainjob cost`: show the pod hours and GPU hours of TrainJobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trainjob.cli import completion, table_format, terminal
from trainjob.cli.terminal import escape
from trainjob.errors import InvalidSpec, Problem
from trainjob.inspection.cost import JobUsage, UsageGroup, group_usages, parse_job_usages, read_job_usages

__all__ = ["cost"]

_ALL_NAMESPACES = typer.Option(
    "--all-namespaces", "-A", help="Count the TrainJobs of all namespaces.", show_default=False
)
_BY = typer.Option(
    metavar="LABEL",
    help="Print one line for each value of this label. Also namespace, and engine, workflow, task and run, which mean "
    "the labels trainjob.dev/engine and so on. Default: one line for all TrainJobs.",
    show_default=False,
)
_FROM = typer.Option(
    "--from",
    metavar="FILE",
    help="File with outcomes of TrainJobs that were deleted, one JSON object per line; - means standard input; may be "
    "repeated.",
    show_default=False,
)
_SELECTOR = typer.Option(
    "--selector", "-l", help="Count only TrainJobs that match, as for kubectl; not those of --from."
)


def cost(
    namespace: Annotated[str, completion.NAMESPACE] = "",
    all_namespaces: Annotated[bool, _ALL_NAMESPACES] = False,
    by: Annotated[str, _BY] = "",
    files: Annotated[list[str] | None, _FROM] = None,
    selector: Annotated[str, _SELECTOR] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show the pod hours and GPU hours of TrainJobs.

    A pod counts from its binding to a node until its end. Time in a queue does not count. Each TrainJob counts once,
    also if several files and the cluster have it. Those that are active count until now. The column INCOMPLETE has the
    number of ended TrainJobs some of whose pods may be missing, so that their hours are a lower bound.

    With --json: an object with by, groups and total. Each group has value (null without the label), trainjobs, active,
    incomplete, pod_seconds, gpu_seconds and resource_seconds.

    Example: trainjob cost -A --by workflow --from outcomes.jsonl
    """
    exported = [usage for file in files or () for usage in _read_export(file)]
    with terminal.open_cluster() as cluster:
        where = None if all_namespaces else namespace or cluster.namespace
        jobs, pods = cluster.list_trainjobs(where, selector), cluster.list_all_trainjob_pods(where)
    existing = read_job_usages(jobs, pods, datetime.now(timezone.utc).replace(microsecond=0))
    usages = [*existing, *(each for each in exported if where in (None, each.namespace))]
    groups, [total] = group_usages(usages, by), group_usages(usages) or [UsageGroup.empty()]
    if as_json:
        values = [group.to_dict() for group in groups] if by else []
        terminal.print_json({"by": by or None, "groups": values, "total": {**total.to_dict(), "value": None}})
    else:
        table_format.print_table(terminal.console(), _table(groups if by else [], total, by))


def _read_export(file: str) -> list[JobUsage]:
    try:
        return parse_job_usages(_read_lines(file), "standard input" if file == "-" else file)
    except OSError as error:
        rule = f"it must be a file that can be read: {error.strerror}"
    except UnicodeDecodeError as error:
        rule = f"it must be text in UTF-8: {error.reason}"
    raise InvalidSpec(Problem("--from", repr(file), rule))


def _read_lines(file: str) -> Iterator[str]:
    if file == "-":
        yield from (line.decode() for line in sys.stdin.buffer)
        return
    with Path(file).open(encoding="utf-8") as opened:
        yield from opened


def _table(groups: list[UsageGroup], total: UsageGroup, by: str) -> Table:
    table = table_format.create_table(by.upper(), "TRAINJOBS", "ACTIVE", "INCOMPLETE", "POD HOURS", "GPU HOURS")
    for group in groups:
        table.add_row(escape("(none)" if group.value is None else group.value), *_cells(group))
    table.add_row("total", *_cells(total))
    return table


def _cells(group: UsageGroup) -> list[str]:
    counts = [str(count) for count in (group.trainjobs, group.active, group.incomplete)]
    return [*counts, *(f"{seconds / 3600:.3f}" for seconds in (group.usage.pod_seconds, group.usage.gpu_seconds))]

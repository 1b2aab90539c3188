"""`trainjob list`: list TrainJobs with their phases."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from trainjob.cli import completion, table_format, terminal
from trainjob.cli.terminal import escape
from trainjob.inspection.summary import Summary, summarize
from trainjob.status import Phase

__all__ = ["list_trainjobs"]

_ALL_NAMESPACES = typer.Option(
    "--all-namespaces", "-A", help="List the TrainJobs of all namespaces.", show_default=False
)
_PHASE = typer.Option(help="List only TrainJobs in this phase; may be repeated.", case_sensitive=False)
_SELECTOR = typer.Option(
    "--selector", "-l", help="Label selector, as for kubectl, such as trainjob.dev/engine=airflow."
)


def list_trainjobs(
    namespace: Annotated[str, completion.NAMESPACE] = "",
    all_namespaces: Annotated[bool, _ALL_NAMESPACES] = False,
    phase: Annotated[list[Phase] | None, _PHASE] = None,
    selector: Annotated[str, _SELECTOR] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """List TrainJobs with their phases, newest first.

    The list has all TrainJobs of the namespace, including those of other users and other tools, such as kubectl.

    With --json: a list of objects with namespace, name, uid, phase, step, reason, message, queue, runtime, percent,
    created, ended, attempt and run_key. `percent` is null if the trainer reports none. `run_key` is null for TrainJobs
    of other tools, otherwise an object with engine, workflow, task, run, map_index and origin.

    Example: trainjob list -A --phase running -l trainjob.dev/engine=airflow
    """
    with terminal.open_cluster() as cluster:
        where = None if all_namespaces else namespace or cluster.namespace
        jobs = cluster.list_trainjobs(where, selector)
    phases = set(phase or Phase)
    # Sort twice: only the creation time is sorted in reverse, and a text in a key cannot be negated.
    found = sorted(map(summarize, jobs), key=lambda one: (one.namespace, one.name))
    found = [one for one in sorted(found, key=lambda one: one.created, reverse=True) if one.phase in phases]
    if as_json:
        terminal.print_json([one.to_dict() for one in found])
    elif found:
        table_format.print_table(terminal.console(), _table(found, all_namespaces=all_namespaces))
    else:
        terminal.error_console().print(f"no TrainJobs{f' in namespace {where}' if where else ''}", markup=False)


def _table(summaries: list[Summary], *, all_namespaces: bool) -> Table:
    table = table_format.create_table(
        *(["NAMESPACE"] if all_namespaces else []),
        "NAME",
        "PHASE",
        "STEP",
        "QUEUE",
        "PROGRESS",
        "AGE",
        "DURATION",
        "RUN KEY",
    )
    for one in summaries:
        progress = "-" if one.percent is None else f"{one.percent} %"
        duration = table_format.format_age(one.created, one.ended) if one.ended else "-"
        facts = [
            one.step or "-",
            one.queue or "-",
            progress,
            table_format.format_age(one.created),
            duration,
            str(one.run_key or "-"),
        ]
        table.add_row(
            *([escape(one.namespace)] if all_namespaces else []),
            escape(one.name),
            table_format.format_phase(one.phase),
            *map(escape, facts),
        )
    return table

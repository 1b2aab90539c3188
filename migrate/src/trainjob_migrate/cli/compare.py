"""`trainjob migrate compare`: a v1 job and a TrainJob of a cluster side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from trainjob.cli import completion, terminal
from trainjob.cli.job_lookup import get_trainjobs
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, NotFound, Problem
from trainjob_migrate.cli.diff import set_table_width
from trainjob_migrate.comparison import Comparison, Row
from trainjob_migrate.comparison import compare as compare_jobs
from trainjob_migrate.operator_jobs import OperatorJobs

__all__ = ["compare"]

_NAME = typer.Argument(metavar="NAME", help="Name of the v1 job.", show_default=False)
_KIND = typer.Option(help="Kind of the v1 job, such as MPIJob, if several kinds have this name.", show_default=False)
_WITH = typer.Option(
    "--with",
    metavar="TRAINJOB",
    help="Name of the TrainJob. Default: the name of the v1 job.",
    show_default=False,
    autocompletion=completion.complete_trainjobs,
)


def compare(
    name: Annotated[str, _NAME],
    train_job: Annotated[str, _WITH] = "",
    kind: Annotated[str, _KIND] = "",
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Compare a v1 job and a TrainJob of a cluster side by side.

    The comparison has states, times, exit codes, restarts, world size, image, command, resources and environment
    variables of their pods. If the pods no longer exist, it has the values of the jobs' specs. `=` marks equal values,
    `!` marks different values, and `***` replaces possible secrets.

    With --json: an object with before, after and rows. Each row has aspect, before, after, same and note.

    Example: trainjob migrate compare bert -n team-a
    """
    with terminal.open_cluster() as cluster:
        old = _find_v1_job(cluster, name, kind, namespace or cluster.namespace)
        (new,) = get_trainjobs(cluster, [train_job or name], namespace)
        train_pods = cluster.list_pods(new["metadata"]["name"], new["metadata"]["namespace"])
        comparison = compare_jobs(old, OperatorJobs(cluster).list_pods(old), new, train_pods)
    if as_json:
        terminal.print_json(comparison.to_dict())
    else:
        set_table_width(terminal.console()).print(_table(comparison))


def _find_v1_job(cluster: Cluster, name: str, kind: str, namespace: str) -> Mapping[str, Any]:
    found = [
        job for job in OperatorJobs(cluster).list_by_name(name, namespace) if kind.lower() in ("", job["kind"].lower())
    ]
    if not found:
        raise NotFound(
            f"there is no {kind or 'job of the Training Operator'} {namespace}/{name}",
            hint="`trainjob migrate report --from-cluster` lists them",
            status=404,
            reason="NotFound",
        )
    if len(found) > 1:
        raise InvalidSpec(
            Problem(
                "--kind", "omitted", f"several kinds have a job of this name: {', '.join(job['kind'] for job in found)}"
            )
        )
    return found[0]


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for title in (comparison.before, comparison.after, ""):
        table.add_column(escape(title), overflow="fold")
    for row in comparison.rows:
        table.add_row(_sign(row), *map(escape, (row.aspect, row.before, row.after, row.note)))
    return table


def _sign(row: Row) -> str:
    """Return the mark of a row: `=` if the values agree, `!` if they differ, else a space."""
    return {True: "[green]=[/]", False: "[bold yellow]![/]", None: " "}[row.same]

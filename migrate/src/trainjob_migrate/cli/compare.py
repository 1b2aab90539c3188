"""`trainjob migrate compare`: a v1 job and a TrainJob of a cluster side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from trainjob.cli import completion, terminal
from trainjob.cli.job_lookup import get_trainjobs
from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, NotFound, Problem
from trainjob_migrate.cli.diff import set_table_width
from trainjob_migrate.comparison import Comparison, Row
from trainjob_migrate.comparison import compare as set_beside
from trainjob_migrate.operator_jobs import OperatorJobs

__all__ = ["compare"]

_NAME = typer.Argument(help="The v1 job, by name.", show_default=False)
_KIND = typer.Option(help="Its kind, where several have the name, such as MPIJob.", show_default=False)
_WITH = typer.Option(
    "--with",
    help="The TrainJob; one of the same name by default.",
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
    """Show how they ended and what their pods got: image, command, environment, resources, world size.

    Works on running and on ended ones; where pods are gone, what the jobs ask for is told. What could be a secret is
    `***`. As JSON: an object with `before`, `after` and `rows` (`aspect`, `before`, `after`, `same`, `note`).

    Args:
        name: of the v1 job.
        train_job: of the TrainJob; empty for the same name.
        kind: of the v1 job.
        namespace: of both; empty for the kubeconfig's.
        as_json: for programs.

    Raises:
        NotFound: one of them does not exist.
        InvalidSpec: several kinds have a job of that name.
        ClusterError: the cluster can't be asked.
    """
    with terminal.open_cluster() as cluster:
        old = _find_v1_job(cluster, name, kind, namespace or cluster.namespace)
        (new,) = get_trainjobs(cluster, [train_job or name], namespace)
        train_pods = cluster.list_pods(new["metadata"]["name"], new["metadata"]["namespace"])
        told = set_beside(old, OperatorJobs(cluster).list_pods(old), new, train_pods)
    if as_json:
        terminal.print_json(told.to_dict())
    else:
        set_table_width(terminal.console()).print(_table(told))


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
            Problem("--kind", "none", f"several kinds have it: {', '.join(job['kind'] for job in found)}")
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

"""`trainjob runtimes`: list or describe the training runtimes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainjob.cli import completion, table_format, terminal
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.client.runtimes import RUNTIME_KINDS
from trainjob.errors import NotFound, PermissionDenied
from trainjob.status.runtime_description import RuntimeDescription

__all__ = ["runtimes"]

_NAME = typer.Argument(
    metavar="NAME", help="Describe this runtime instead of listing all.", autocompletion=completion.complete_runtimes
)
_NAMESPACE = typer.Option(
    "--namespace", "-n", help="Namespace of the TrainingRuntimes. Default: that of the kubeconfig's context."
)


def runtimes(
    name: Annotated[str, _NAME] = "",
    namespace: Annotated[str, _NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """List the training runtimes that a TrainJob can use, or describe one of them.

    These are the ClusterTrainingRuntimes of the cluster and the TrainingRuntimes of the namespace. The description has
    the nodes, containers, images and resources of the runtime.
    """
    with terminal.open_cluster() as cluster:
        found, hidden = _list_runtimes(cluster, namespace or cluster.namespace)
    if name and not any(one.name == name for one in found):
        there = ", ".join(one.name for one in found) or "none"
        raise NotFound(f"there is no training runtime {name}", hint=f"existing runtimes: {there}")
    chosen = [one for one in found if name in ("", one.name)]
    if as_json:
        terminal.print_json([one.to_dict() for one in chosen])
        return
    console = terminal.console()
    for kind in hidden:
        terminal.error_console().print(f"[yellow]no permission to list {kind}s; the list does not contain them[/]")
    if name:
        for one in chosen:
            _print_runtime(console, one)
    else:
        table_format.print_table(console, _table(chosen))


def _list_runtimes(cluster: Cluster, namespace: str) -> tuple[list[RuntimeDescription], list[str]]:
    """Return the runtimes, and the kinds that the user may not list."""
    found: list[RuntimeDescription] = []
    hidden: dict[str, PermissionDenied] = {}
    for kind in RUNTIME_KINDS:
        try:
            found += cluster.runtimes.list_all(kind, namespace)
        except PermissionDenied as error:
            hidden[kind] = error
    if len(hidden) == len(RUNTIME_KINDS):
        raise hidden[RUNTIME_KINDS[0]]
    return found, list(hidden)


def _table(found: Sequence[RuntimeDescription]) -> Table:
    table = table_format.create_table("NAME", "KIND", "FRAMEWORK", "NODES", "DEVICES", "STEPS")
    for one in found:
        name = f"{escape(one.name)} [yellow](deprecated)[/]" if one.deprecated else escape(one.name)
        steps = ", ".join(step.name for step in one.steps)
        cells = (one.kind, one.framework or "-", str(one.num_nodes), _devices(one) or "-", steps)
        table.add_row(name, *map(escape, cells))
    return table


def _print_runtime(console: Console, one: RuntimeDescription) -> None:
    for title, value in _facts(one):
        console.print(f"[bold]{title:<14}[/]{escape(value)}")


def _facts(one: RuntimeDescription) -> Iterator[tuple[str, str]]:
    yield "Name", one.name
    yield "Kind", f"{one.kind} in namespace {one.namespace}" if one.namespace else one.kind
    yield "Framework", one.framework or "-"
    yield "ML policy", one.policy or "-"
    yield "Nodes", str(one.num_nodes)
    yield "Gang", one.gang or "-"
    yield "Deprecated", "yes" if one.deprecated else "no"
    for step in one.steps:
        resources = "".join(f", {name}: {amount}" for name, amount in step.resources.items())
        yield "Step", f"{step.name} ({step.role or 'no role'}): {step.image or 'no image'}{resources}"


def _devices(one: RuntimeDescription) -> str:
    resources = one.trainer.resources if one.trainer else {}
    return ", ".join(f"{name}: {amount}" for name, amount in resources.items() if "/" in name)

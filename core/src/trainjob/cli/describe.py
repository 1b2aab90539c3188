"""`trainjob describe`: show one TrainJob on one screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from trainjob.cli import cells, completion, terminal
from trainjob.cli.named import named
from trainjob.cli.submit import Output
from trainjob.inspection.description import Description
from trainjob.inspection.description import describe as look_at
from trainjob.status import Phase
from trainjob.status.reading import table

__all__ = ["describe"]

_NAME = typer.Argument(help="Which, by name or as NAMESPACE/NAME.", autocompletion=completion.trainjobs)
_LOG_LINES, _PODS = 8, 16
_LINE = 160  # characters; a command may contain a whole program


_OUTPUT = typer.Option("--output", "-o", help="yaml: the object itself.", show_default=False)


def describe(
    name: Annotated[str, _NAME],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    output: Annotated[Output | None, _OUTPUT] = None,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Tell all about one TrainJob: its spec in short, phase, steps, pods, events, story, end, and what to do.

    What may not be read, such as events, is said and left out. As JSON: what `trainjob list --json` tells, with `spec`,
    `steps`, `pods`, `events`, `story`, `outcome` (null while it has not ended), `result` (what its program handed back,
    or null), `hints` and `unread`.

    Args:
        name: which.
        namespace: where; empty for the kubeconfig's own.
        output: the object itself.
        as_json: for programs.

    Raises:
        NotFound: there is none of that name.
        ClusterError: the cluster can't be asked.
    """
    from trainjob.spec.redaction import shown

    with terminal.cluster() as cluster:
        [job] = named(cluster, [name], namespace)
        found = look_at(cluster, job)
    spec = shown(found.spec)  # commands may contain secrets, too
    if output is Output.YAML:
        meta = {key: value for key, value in table(found.job, "metadata").items() if key != "managedFields"}
        terminal.print_yaml({**found.job, "metadata": meta})
    elif as_json:
        terminal.print_json({**found.to_dict(), "spec": spec})
    else:
        _show(terminal.console(), found, spec)


def _show(console: Console, found: Description, spec: Mapping[str, Any]) -> None:
    one = found.summary
    step = f" [{one.step}]" if one.step else ""
    console.print(
        f"[bold]{escape(f'TrainJob {one.namespace}/{one.name}')}[/]  {cells.colored(one.phase)}{escape(step)}"
    )
    for title, value in _facts(found, spec):
        console.print(f"  {title:<10}  {escape(value)}")
    for title, rows, names in (
        ("Steps", found.steps, ("name", "active", "ready", "succeeded", "failed")),
        ("Pods", found.pods[:_PODS], ("name", "phase", "node", "restarts", "exit_code", "reason")),
    ):
        _show_table(console, title, rows, names)
    if len(found.pods) > _PODS:
        console.print(f"  and {len(found.pods) - _PODS} more")
    if not found.pods and one.phase.finished and not any(line.startswith("pods") for line in found.unread):
        console.print("\n[bold]Pods[/]\n  none is left")
    events = [{**event, "age": cells.age(event["time"]), "count": f"x{event['count']}"} for event in found.events]
    _show_table(console, "Events", events, ("age", "count", "reason", "about", "message"))
    story = [{"time": moment["time"], "what": moment["what"]} for moment in found.story]
    _show_table(console, "Story", story, ("time", "what"), titles=False)
    for title, lines in _texts(found):
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(f"  {escape(line)}")


def _facts(found: Description, spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    one = found.summary
    why = found.outcome.message or found.outcome.reason if found.outcome else one.message or one.reason
    if one.phase is not Phase.COMPLETE and why:
        yield "why", why
    ended = f", ended {one.ended} after {cells.age(one.created, one.ended)}" if one.ended else ""
    yield "age", f"{cells.age(one.created)}{ended}"
    if one.asked_by:
        yield "asked by", f"{one.asked_by}, attempt {max(one.attempt, 1)}"
    yield "runtime", "{name} ({kind})".format(**spec["runtime"])
    for name in ("image", "queue", "priority_class"):
        if name in spec:
            yield name.replace("_", " "), spec[name]
    yield "size", _size(spec)
    yield from spec.get("initializers", {}).items()
    for name in ("command", "env", "claims"):
        if name in spec:
            line = " ".join((" " if name == "command" else ", ").join(spec[name]).split())
            yield name, line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
    if "deadline_seconds" in spec:
        yield "deadline", f"{spec['deadline_seconds']} s"
    if one.percent is not None:
        yield "progress", f"{one.percent} %"


def _size(spec: Mapping[str, Any]) -> str:
    nodes = spec.get("nodes")
    resources = ", ".join(f"{name}: {amount}" for name, amount in spec.get("resources_per_node", {}).items())
    return cells.words(
        (
            "nodes as the runtime says" if nodes is None else f"{nodes} node{'s' * (nodes != 1)}",
            f"processes a node: {spec['processes_per_node']}" if "processes_per_node" in spec else "",
            f"{resources} each" if resources else "",
        )
    )


def _texts(found: Description) -> Iterator[tuple[str, list[str]]]:
    if found.outcome and found.outcome.log_tail:
        where = f"{found.outcome.step}-{found.outcome.rank}"
        yield f"Last lines of {where}, exit code {found.outcome.exit_code}", list(found.outcome.log_tail[-_LOG_LINES:])
    if found.result is not None:
        yield "Handed back", json.dumps(found.result, indent=2).splitlines()
    if found.hints:
        yield "What to do", found.hints
    if found.unread:
        yield "Could not be read", found.unread


def _show_table(
    console: Console, title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], *, titles: bool = True
) -> None:
    if not rows:
        return
    told = cells.columns(*(name.replace("_", " ").upper() for name in names))
    told.show_header = titles
    for row in rows:
        told.add_row(*(escape("-" if row[name] in (None, "") else str(row[name])) for name in names))
    console.print(f"\n[bold]{title}[/]")
    cells.print_table(console, told, indent=2)

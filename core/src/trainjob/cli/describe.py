"""`trainjob describe`: show one TrainJob on one screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from trainjob.cli import completion, table_format, terminal
from trainjob.cli.job_lookup import get_trainjobs
from trainjob.cli.submit import Output, print_manifests
from trainjob.cli.terminal import escape
from trainjob.inspection.description import Description
from trainjob.inspection.description import describe as inspect_trainjob
from trainjob.manifest.review import shorten_command
from trainjob.status import Phase
from trainjob.status.nested_fields import get_mapping

__all__ = ["describe"]

_NAME = typer.Argument(
    metavar="NAME", help="TrainJob, as NAME or NAMESPACE/NAME.", autocompletion=completion.complete_trainjobs
)
_LOG_LINES, _PODS = 8, 16
_MAX_LINE_LENGTH = 160  # characters; a command may contain a whole program
_OUTPUT = typer.Option(
    "--output",
    "-o",
    help="Print the TrainJob: yaml as the API server returns it, or summary for reviewers.",
    show_default=False,
)


def describe(
    name: Annotated[str, _NAME],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    output: Annotated[Output | None, _OUTPUT] = None,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show the details of one TrainJob, and what to do if it has a problem.

    The output has a summary of its spec, and its phase, steps, pods, events, timeline and result. Objects that you
    have no permission to read, such as events, are left out and listed under "Could not be read".

    With --json: the keys of `trainjob list --json`, and spec, steps, pods, events, timeline, outcome, start, result,
    hints and read_errors. `outcome` is null before the end. `start` says from which checkpoint a training continues, or
    why it starts from the beginning. `result` is the value that its program returned, or null.
    """
    from trainjob.spec.redaction import redact

    with terminal.open_cluster() as cluster:
        [job] = get_trainjobs(cluster, [name], namespace)
        found = inspect_trainjob(cluster, job)
    spec = redact(found.spec)  # commands may contain secrets, too
    if output:
        meta = {key: value for key, value in get_mapping(found.job, "metadata").items() if key != "managedFields"}
        print_manifests([{**found.job, "metadata": meta}], output)
    elif as_json:
        terminal.print_json({**found.to_dict(), "spec": spec})
    else:
        _show(terminal.console(), found, spec)


def _show(console: Console, description: Description, spec: Mapping[str, Any]) -> None:
    one = description.summary
    title, step = f"TrainJob {one.namespace}/{one.name}", f" [{one.step}]" if one.step else ""
    console.print(f"[bold]{escape(title)}[/]  {table_format.format_phase(one.phase)}{escape(step)}")
    for title, value in _facts(description, spec):
        console.print(f"  {title:<10}  {escape(value)}")
    for title, rows, names in (
        ("Steps", description.steps, ("name", "active", "ready", "succeeded", "failed")),
        ("Pods", description.pods[:_PODS], ("name", "phase", "node", "restarts", "exit_code", "reason")),
    ):
        _show_table(console, title, rows, names)
    if len(description.pods) > _PODS:
        console.print(f"  and {len(description.pods) - _PODS} more")
    if (
        not description.pods
        and one.phase.finished
        and not any(line.startswith("pods") for line in description.read_errors)
    ):
        console.print("\n[bold]Pods[/]\n  all were deleted")
    events = [
        {**event, "age": table_format.format_age(event["time"]), "count": f"x{event['count']}"}
        for event in description.events
    ]
    _show_table(console, "Events", events, ("age", "count", "reason", "about", "message"))
    timeline = [{"time": moment["time"], "what": moment["what"]} for moment in description.timeline]
    _show_table(console, "Timeline", timeline, ("time", "what"), titles=False)
    for title, lines in _texts(description):
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(f"  {escape(line)}")


def _facts(description: Description, spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    one = description.summary
    why = description.outcome.cause if description.outcome else one.message or one.reason
    if one.phase is not Phase.COMPLETE and why:
        yield "why", why
    ended = f", ended {one.ended} after {table_format.format_age(one.created, one.ended)}" if one.ended else ""
    yield "age", f"{table_format.format_age(one.created)}{ended}"
    if one.run_key:
        yield "run key", f"{one.run_key}, attempt {max(one.attempt, 1)}"
    yield "runtime", "{name} ({kind})".format(**spec["runtime"])
    for name in ("image", "queue", "priority_class"):
        if name in spec:
            yield name.replace("_", " "), spec[name]
    yield "size", _size(spec)
    yield from spec.get("initializers", {}).items()
    yield from (("code", _describe_code(code)) for code in [spec.get("code")] if code)
    for name in ("command", "env", "claims"):
        if name in spec:
            words = shorten_command(spec[name]) if name == "command" else spec[name]
            line = " ".join((" " if name == "command" else ", ").join(words).split())
            yield name, line if len(line) <= _MAX_LINE_LENGTH else f"{line[: _MAX_LINE_LENGTH - 1]}…"
    if "deadline_seconds" in spec:
        yield "deadline", f"{spec['deadline_seconds']} s"
    if progress := description.progress:
        at = f", reported {progress.reported_at}" if progress.reported_at else ""
        yield "progress", f"{progress}{at}"
    if description.start:
        yield "start", description.start


def _describe_code(code: Mapping[str, Any]) -> str:
    branch = f" of {code['branch']}" if code.get("branch") else ""
    commit = f"commit {code['commit'][:12]}{branch}" if code.get("commit") else ""
    return table_format.join_words((code.get("sha256", "")[:12], commit, "modified" if code.get("modified") else ""))


def _size(spec: Mapping[str, Any]) -> str:
    nodes = spec.get("nodes")
    resources = ", ".join(f"{name}: {amount}" for name, amount in spec.get("resources_per_node", {}).items())
    return table_format.join_words(
        (
            "number of nodes from the runtime" if nodes is None else f"{nodes} node{'s' * (nodes != 1)}",
            f"processes per node: {spec['processes_per_node']}" if "processes_per_node" in spec else "",
            f"{resources} per node" if resources else "",
        )
    )


def _texts(description: Description) -> Iterator[tuple[str, list[str]]]:
    if description.outcome and description.outcome.log_tail:
        where = f"{description.outcome.step}-{description.outcome.rank}"
        yield (
            f"Last lines of {where}, exit code {description.outcome.exit_code}",
            list(description.outcome.log_tail[-_LOG_LINES:]),
        )
    if description.result is not None:
        yield "Result", json.dumps(description.result, indent=2).splitlines()
    if description.hints:
        yield "What to do", description.hints
    if description.read_errors:
        yield "Could not be read", description.read_errors


def _show_table(
    console: Console, title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], *, titles: bool = True
) -> None:
    if not rows:
        return
    table = table_format.create_table(*(name.replace("_", " ").upper() for name in names))
    table.show_header = titles
    for row in rows:
        table.add_row(*(escape("-" if row[name] in (None, "") else str(row[name])) for name in names))
    console.print(f"\n[bold]{title}[/]")
    table_format.print_table(console, table, indent=2)

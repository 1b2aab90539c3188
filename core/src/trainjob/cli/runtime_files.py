"""Training runtimes in the file of a command: created before its TrainJobs, and changed only on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from trainjob.cli import terminal
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.errors import Conflict, InvalidSpec, PermissionDenied, Problem
from trainjob.manifest import labels
from trainjob.manifest.runtime_documents import find_differences, format_apply_advice, set_namespace

APPLY_RUNTIMES = typer.Option(
    "--apply-runtimes",
    help="Replace the cluster's training runtimes that differ from those of the file. Without this option, the command "
    "shows the difference and creates nothing. Running TrainJobs are not changed.",
)
_KEPT_METADATA = ("resourceVersion", "ownerReferences", "finalizers")


def create_runtimes(
    cluster: Cluster, runtimes: Sequence[Mapping[str, Any]], namespace: str, file: str, *, replace: bool
) -> None:
    """Create the runtimes of a file that do not exist, and check that the others are equal.

    All runtimes are checked before the first one is created or replaced.

    Args:
        cluster: the cluster.
        runtimes: the runtimes of the file.
        namespace: namespace of the TrainingRuntimes; empty means their own, or the connection's.
        file: path of the file, for advice.
        replace: whether to replace those that differ.

    Raises:
        InvalidSpec: a runtime differs and may not be replaced, or the user requests another namespace than its own.
        PermissionDenied: a runtime does not exist, and the permission to create it is missing.
        ClusterError: a request failed or was refused.
    """
    wanted = [set_namespace(runtime, namespace, cluster.namespace) for runtime in runtimes]
    checked = [(runtime, *_compare(cluster, runtime, file)) for runtime in wanted]
    if not replace and (problems := [_to_problem(runtime, lines) for runtime, _, lines in checked if lines]):
        raise InvalidSpec(
            problems, hint="use --apply-runtimes to replace it, or give the runtime in the file another name"
        )
    for runtime, existing, lines in checked:
        if existing is None:
            _create(cluster, runtime, file)
        elif lines:
            kept = {key: existing["metadata"][key] for key in _KEPT_METADATA if key in existing["metadata"]}
            cluster.runtimes.replace({**runtime, "metadata": _merge_metadata(existing, runtime) | kept})
            _report(f"{_name(runtime)}: replaced")


def _compare(cluster: Cluster, runtime: Mapping[str, Any], file: str) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Return the runtime of the cluster, and the differences of the file's runtime.

    The API server sets the defaults of the file's runtime by a dry run, for which it needs a name that does not exist.
    Without the permissions to get and create runtimes, it counts as equal.
    """
    name = runtime["metadata"]["name"]
    metadata = {key: value for key, value in runtime["metadata"].items() if key != "name"}
    try:
        existing = cluster.runtimes.get(runtime)
        if existing is None:
            return None, []
        probe = {**runtime, "metadata": {**metadata, "generateName": f"{name}-"}}
        return existing, find_differences(existing, cluster.runtimes.create(probe, dry_run=True))
    except PermissionDenied as error:
        _report(
            f"{_name(runtime)}: not compared with the cluster's: {error.message}; "
            f"if the cluster does not have it: {format_apply_advice(runtime, file)}"
        )
        return runtime, []


def _create(cluster: Cluster, runtime: Mapping[str, Any], file: str) -> None:
    metadata = runtime["metadata"]
    marked = {**metadata, "labels": {**labels.MANAGED_BY, **(metadata.get("labels") or {})}}
    try:
        cluster.runtimes.create({**runtime, "metadata": marked})
    except PermissionDenied as error:
        advice = format_apply_advice(runtime, file)
        raise PermissionDenied(
            error.message, hint=f"somebody with this permission has to run: {advice}", status=error.status
        ) from None
    except Conflict:  # another command has created it since the comparison
        _, lines = _compare(cluster, runtime, file)
        if lines:
            raise InvalidSpec(_to_problem(runtime, lines)) from None
    _report(f"{_name(runtime)}: created")


def _merge_metadata(existing: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    old, new = existing["metadata"], runtime["metadata"]
    return {**new, **{part: {**(old.get(part) or {}), **new.get(part, {})} for part in ("labels", "annotations")}}


def _to_problem(runtime: Mapping[str, Any], lines: list[str]) -> Problem:
    return Problem(_name(runtime), "changed", "the cluster has it with other values:\n" + "\n".join(lines))


def _name(runtime: Mapping[str, Any]) -> str:
    metadata = runtime["metadata"]
    return f"{runtime['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"


def _report(text: str) -> None:
    terminal.error_console().print(escape(text))

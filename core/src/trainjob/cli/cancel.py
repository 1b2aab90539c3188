"""`trainjob cancel`, `suspend` and `resume`: delete, suspend and resume TrainJobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.job_lookup import NAMES, get_references
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.errors import ExitCode, TrainJobError
from trainjob.lifecycle import JobReference, cancel_unless_finished, set_suspended
from trainjob.status import Phase

__all__ = ["cancel", "resume", "suspend"]


def cancel(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Delete TrainJobs that have not ended, with their pods.

    TrainJobs that have ended are not deleted, because their own volumes, which may have a model, would be deleted with
    them. To delete them, use `trainjob sweep`.

    With --json: a list of objects with name, namespace, uid, done and reason. `done` is "deleted", "unchanged" or
    "failed".

    Example: trainjob cancel tune-1a2b3c4d
    """

    def cancel_one(cluster: Cluster, reference: JobReference) -> tuple[str, str]:
        phase = cancel_unless_finished(cluster, reference).phase
        if phase is Phase.DELETED:
            return _UNCHANGED, "it no longer exists"
        return (_UNCHANGED, f"it is {phase.value}") if phase.finished else ("deleted", "")

    _apply_to_each(names, namespace, cancel_one, as_json=as_json)


def suspend(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Suspend TrainJobs and delete their pods.

    Their volumes remain. After `trainjob resume`, the training starts from its beginning, or from its last checkpoint
    if the program loads one. A TrainJob in a Kueue queue cannot be suspended, because Kueue would resume it at once.

    With --json: a list as for `trainjob cancel`, with "suspended" as the value of `done`.
    """
    _apply_to_each(names, namespace, lambda cluster, one: _set_suspended(cluster, one, suspended=True), as_json=as_json)


def resume(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Resume suspended TrainJobs.

    With --json: a list as for `trainjob cancel`, with "resumed" as the value of `done`.
    """
    _apply_to_each(
        names, namespace, lambda cluster, one: _set_suspended(cluster, one, suspended=False), as_json=as_json
    )


_UNCHANGED, _FAILED = "unchanged", "failed"
_Action = Callable[[Cluster, JobReference], tuple[str, str]]
"""Action on one TrainJob; returns its result, such as "deleted", and the reason."""


def _set_suspended(cluster: Cluster, reference: JobReference, *, suspended: bool) -> tuple[str, str]:
    done, already = ("suspended", "is already suspended") if suspended else ("resumed", "is not suspended")
    if set_suspended(cluster, reference.name, reference.namespace, suspended=suspended):
        return done, ""
    return _UNCHANGED, f"it has ended, or {already}"


def _apply_to_each(names: list[str], namespace: str, action: _Action, *, as_json: bool) -> None:
    """Apply an action to all TrainJobs, even if it fails for some of them.

    Raises:
        Exit: the action failed for a TrainJob, after all were tried.
    """
    results, failed = [], False
    with terminal.open_cluster() as cluster:
        for reference in get_references(cluster, names, namespace):
            try:
                done, reason = action(cluster, reference)
            except TrainJobError as error:
                done, reason, failed = _FAILED, str(error), True
            place = {"name": reference.name, "namespace": reference.namespace, "uid": reference.uid}
            results.append({**place, "done": done, "reason": reason})
            if not as_json:
                _print_result(reference, done, reason)
    if as_json:
        terminal.print_json(results)
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def _print_result(reference: JobReference, done: str, reason: str) -> None:
    color = {_FAILED: "red", _UNCHANGED: "yellow"}.get(done, "green")
    console = terminal.error_console() if done == _FAILED else terminal.console()
    console.print(f"TrainJob {escape(str(reference))}: [{color}]{done}[/]{escape(f': {reason}' if reason else '')}")

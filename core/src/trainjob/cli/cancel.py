"""`trainjob cancel`, `suspend` and `resume`: delete, suspend and resume TrainJobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from trainjob import lifecycle
from trainjob.cli import completion, terminal
from trainjob.cli.job_lookup import NAMES, get_trainjobs
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.errors import ExitCode, TrainJobError
from trainjob.lifecycle import JobReference, reference_to, set_suspended
from trainjob.retention.unused_runtimes import RuntimeReference, delete_runtime_unless_used, runtime_reference_of
from trainjob.status import Phase

__all__ = ["cancel", "resume", "suspend"]

_RUNTIMES = typer.Option(
    "--runtimes",
    help="Also delete the TrainingRuntimes of these TrainJobs that `trainjob submit` or `trainjob run` created, if no "
    "other TrainJob uses them.",
)


def cancel(
    names: Annotated[list[str], NAMES],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    runtimes: Annotated[bool, _RUNTIMES] = False,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Delete TrainJobs that have not ended, with their pods.

    TrainJobs that have ended are not deleted, because their own volumes, which may have a model, would be deleted with
    them. To delete them, use `trainjob sweep`.

    With --json: a list of objects with kind, name, namespace, uid, done and reason. `done` is "deleted", "unchanged" or
    "failed".

    Example: trainjob cancel tune-1a2b3c4d
    """

    def cancel_one(cluster: Cluster, reference: JobReference) -> tuple[str, str]:
        end = lifecycle.cancel(cluster, reference)
        if end.verdict.phase is Phase.DELETED and end.had_finished:
            return _UNCHANGED, "it no longer exists"
        return (_UNCHANGED, f"it is {end.verdict.phase.value}") if end.had_finished else ("deleted", "")

    _apply_to_each(names, namespace, cancel_one, as_json=as_json, delete_runtimes=runtimes)


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


def _apply_to_each(
    names: list[str], namespace: str, action: _Action, *, as_json: bool, delete_runtimes: bool = False
) -> None:
    """Apply an action to all TrainJobs, even if it fails for some, then delete their runtimes.

    Raises:
        Exit: a request failed for a TrainJob or a runtime, after all were tried.
    """
    results: list[dict[str, str]] = []

    def report(kind: str, place: JobReference | RuntimeReference, uid: str, done: str, reason: str) -> None:
        names = {"kind": kind, "name": place.name, "namespace": place.namespace, "uid": uid}
        results.append({**names, "done": done, "reason": reason})
        if not as_json:
            _print_result(results[-1])

    with terminal.open_cluster() as cluster:
        jobs = get_trainjobs(cluster, names, namespace)
        for reference in (reference_to(job, adopted=True) for job in jobs):
            try:
                done, reason = action(cluster, reference)
            except TrainJobError as error:
                done, reason = _FAILED, str(error)
            report("TrainJob", reference, reference.uid, done, reason)
        for runtime in dict.fromkeys(map(runtime_reference_of, jobs)) if delete_runtimes else ():
            try:
                result = delete_runtime_unless_used(cluster, runtime)
            except TrainJobError as error:
                report(runtime.kind, runtime, "", _FAILED, str(error))
            else:
                done = _UNCHANGED if result.reason_to_keep else "deleted"
                report(runtime.kind, runtime, result.uid, done, result.reason_to_keep)
    if as_json:
        terminal.print_json(results)
    if any(result["done"] == _FAILED for result in results):
        raise typer.Exit(ExitCode.FAILED)


def _print_result(result: Mapping[str, str]) -> None:
    done, reason = result["done"], result["reason"]
    color = {_FAILED: "red", _UNCHANGED: "yellow"}.get(done, "green")
    console = terminal.error_console() if done == _FAILED else terminal.console()
    name = "/".join(filter(None, (result["namespace"], result["name"])))
    console.print(f"{result['kind']} {escape(name)}: [{color}]{done}[/]{escape(f': {reason}' if reason else '')}")

"""`trainjob sweep`: delete TrainJobs whose time to live has expired."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.terminal import escape
from trainjob.retention import SweepResult
from trainjob.retention import sweep as sweep_namespace
from trainjob.retention.unused_runtimes import sweep_runtimes
from trainjob.spec.durations import parse_duration

__all__ = ["sweep"]

_FINISHED_FOR = typer.Option(
    metavar="DURATION",
    help="Also delete TrainJobs without a time to live that ended this long ago, such as 30m, 12h or 7d.",
)
_UNEXPORTED = typer.Option(help="Also delete TrainJobs whose model would be deleted with them.")
_RUNTIMES = typer.Option(
    "--runtimes",
    help="Also delete TrainingRuntimes that `trainjob submit` or `trainjob run` created and that no TrainJob uses.",
)
_DRY_RUN = typer.Option(help="Print what would be deleted, without deleting it.")


def sweep(
    namespace: Annotated[str, completion.NAMESPACE] = "",
    finished_for: Annotated[str, _FINISHED_FOR] = "",
    unexported: Annotated[bool, _UNEXPORTED] = False,
    runtimes: Annotated[bool, _RUNTIMES] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Delete finished TrainJobs whose time to live has expired.

    The command deletes only TrainJobs that this project created. It does not delete active ones, because only the
    workflow engine knows whether a task still waits for them. It keeps TrainJobs whose model was not exported, unless
    --unexported is given. You may run it at any time, also several times in parallel.

    Example: trainjob sweep -n team-a --finished-for 7d --dry-run
    """
    lifetime = parse_duration(finished_for, "--finished-for") if finished_for else None
    console = terminal.console()
    planned = {"deleted": "would be deleted", "suspended": "would be suspended"} if dry_run else {}

    def print_result(one: SweepResult) -> None:
        color = "yellow" if one.action == "kept" else "green"
        console.print(
            f"{escape(str(one.reference))} [{color}]{planned.get(one.action, one.action)}[/]: {escape(one.reason)}"
        )

    with terminal.open_cluster() as cluster:
        results = sweep_namespace(
            cluster,
            namespace=namespace,
            finished_for=lifetime,
            unexported=unexported,
            dry_run=dry_run,
            on_result=print_result,
        )
        if runtimes:
            gone = {one.reference.uid for one in results if dry_run and one.action == "deleted"}
            for swept in sweep_runtimes(cluster, namespace=namespace, dry_run=dry_run, deleted=gone):
                done = planned.get("deleted", "deleted")
                console.print(f"{escape(str(swept.reference))} [green]{done}[/]: no TrainJob uses it")

"""`trainjob sweep`: delete TrainJobs whose time to live is over."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from trainjob.cli import completion, terminal
from trainjob.manifest.durations import parse_duration
from trainjob.retention import SweepResult
from trainjob.retention import sweep as sweep_namespace

__all__ = ["sweep"]

_FINISHED_FOR = typer.Option(
    help="Delete those, too, that have ended this long ago and have no time to live of their own: 30m, 12h, 7d."
)
_UNEXPORTED = typer.Option(help="Delete those, too, whose model is on a claim that goes with them.")
_DRY_RUN = typer.Option(help="Tell what would be done, and do nothing.")


def sweep(
    namespace: Annotated[str, completion.NAMESPACE] = "",
    finished_for: Annotated[str, _FINISHED_FOR] = "",
    unexported: Annotated[bool, _UNEXPORTED] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Delete the TrainJobs of a namespace whose time to live is over.

    Only those that this project has made, and none that is at work: whether somebody waits for it is known to its
    workflow engine only. One whose model nobody has exported stays. May run as often as you like, also several at once.

    Args:
        namespace: where; empty for the kubeconfig's own.
        finished_for: a duration, or empty.
        unexported: whether models may be lost.
        dry_run: only tell.

    Raises:
        InvalidSpec: the duration is none.
        ClusterError: the cluster can't be asked.
    """
    lifetime = parse_duration(finished_for, "--finished-for") if finished_for else None
    console = terminal.console()
    deeds = {"deleted": "would be deleted", "suspended": "would be suspended"} if dry_run else {}

    def print_result(one: SweepResult) -> None:
        color = "yellow" if one.action == "kept" else "green"
        console.print(
            f"{escape(str(one.reference))} [{color}]{deeds.get(one.action, one.action)}[/]: {escape(one.reason)}"
        )

    with terminal.open_cluster() as cluster:
        sweep_namespace(
            cluster,
            namespace=namespace,
            finished_for=lifetime,
            unexported=unexported,
            dry_run=dry_run,
            on_result=print_result,
        )

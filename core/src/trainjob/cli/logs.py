"""`trainjob logs`: print the logs of all containers of a TrainJob, with step and rank."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.interruption import Interruption
from trainjob.cli.job_lookup import get_references
from trainjob.cli.progress_output import ProgressOutput
from trainjob.cli.terminal import escape
from trainjob.client import Cluster, LogFollower, LogLine, LogNotice, ObjectEvent
from trainjob.client.whole_log import read_log
from trainjob.errors import AdmissionRefused, NotFound
from trainjob.lifecycle import JobReference, JobSelector, wait_external
from trainjob.status.nested_fields import get_int, get_str
from trainjob.status.pods import container_statuses, rank_of, step_of
from trainjob.threads import run_on_thread

__all__ = ["logs"]

_NAME = typer.Argument(
    metavar="NAME",
    help="TrainJob, as NAME or NAMESPACE/NAME.",
    show_default=False,
    autocompletion=completion.complete_trainjobs,
)
_FOLLOW = typer.Option("--follow", "-f", help="Follow the logs until the TrainJob has ended.", show_default=False)
_STEP = typer.Option(help="Print only the logs of this step, such as node or dataset-initializer.", show_default=False)
_RANK = typer.Option(help="Print only the logs of this rank, counted from 0.", min=0, show_default=False)
_PREVIOUS = typer.Option("--previous", "-p", help="Print the logs of the containers before their last restart.")
_LAST_SECONDS = 10.0  # how long to continue reading after the end

_PodFilter = Callable[[Mapping[str, Any]], bool]


def logs(
    name: Annotated[str, _NAME],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    follow: Annotated[bool, _FOLLOW] = False,
    step: Annotated[str, _STEP] = "",
    rank: Annotated[int | None, _RANK] = None,
    previous: Annotated[bool, _PREVIOUS] = False,
    keep_colors: Annotated[bool, terminal.KEEP_COLORS] = False,
) -> None:
    """Print the logs of a TrainJob, of all steps and ranks.

    Each line is `[STEP-RANK] text`. Without --follow, the command prints the logs that exist now, one container after
    the other. With --follow, it prints the lines of all containers as they appear until the TrainJob has ended. This
    includes pods that start later and containers that restart. Frames of progress bars are left out.

    Example: trainjob logs -f tune-1a2b3c4d --rank 0
    """
    if follow and previous:
        raise typer.BadParameter("logs of earlier containers cannot be followed: use either --follow or --previous")

    def is_selected(pod: Mapping[str, Any]) -> bool:
        return step in ("", step_of(pod)) and rank in (None, rank_of(pod))

    with terminal.open_cluster() as cluster:
        [reference] = get_references(cluster, [name], namespace)
        if follow:
            asyncio.run(_follow(cluster, reference, is_selected, keep_colors=keep_colors))
        else:
            _print_logs(cluster, reference, is_selected, previous=previous, keep_colors=keep_colors)


def _print_logs(
    cluster: Cluster, reference: JobReference, is_selected: _PodFilter, *, previous: bool, keep_colors: bool
) -> None:
    def print_line(line: LogLine) -> None:
        if isinstance(line, LogNotice):
            terminal.error_console().print(escape(str(line)))
        elif not line.frame:
            terminal.print_line(str(line), keep_colors=keep_colors)

    pods = [pod for pod in cluster.list_pods(reference.name, reference.namespace) if is_selected(pod)]
    if not pods:
        _report_no_pods(reference)
    for pod in sorted(
        pods, key=lambda pod: (get_str(pod, "metadata", "creationTimestamp"), step_of(pod), rank_of(pod))
    ):
        for container in container_statuses(pod):
            if previous and not get_int(container, "restartCount"):
                continue
            try:
                read_log(cluster, pod, get_str(container, "name"), print_line, previous=previous)
            except (AdmissionRefused, NotFound) as error:  # not started, or already deleted
                terminal.error_console().print(f"\\[{step_of(pod)}-{rank_of(pod)}] {escape(error.message)}")


def _report_no_pods(reference: JobReference) -> None:
    terminal.error_console().print(
        f"TrainJob {escape(str(reference))} has no pods of this step and rank; deleted pods have no logs"
    )


async def _follow(cluster: Cluster, reference: JobReference, is_selected: _PodFilter, *, keep_colors: bool) -> None:
    interruption = Interruption()
    with ProgressOutput(terminal.console(), interruption, keep_colors=keep_colors) as output:

        def emit(line: LogLine) -> None:
            if not line.frame:
                output.print_line(str(line))

        follower = LogFollower(cluster, reference.namespace, emit)
        any_pods = False

        def on_event(event: ObjectEvent) -> None:
            nonlocal any_pods
            if event.object is not None and is_selected(event.object):
                any_pods = True
                follower.observe(event)

        try:
            with cluster.pod_informer(reference.namespace).add_event_handler(reference.name, on_event):
                await interruption.run(wait_external(cluster, JobSelector(reference.namespace, reference.name)))
                for pod in await run_on_thread(cluster.list_pods, reference.name, reference.namespace):
                    on_event(ObjectEvent(pod))  # the watch of pods may lag behind that of the TrainJob
                if not any_pods:
                    _report_no_pods(reference)
                await interruption.run(run_on_thread(follower.finish, _LAST_SECONDS))
        finally:
            follower.stop()

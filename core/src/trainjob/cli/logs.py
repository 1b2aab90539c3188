"""`trainjob logs`: print the logs of all containers of a TrainJob, with step and rank."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from trainjob.cli import completion, terminal
from trainjob.cli.halting import Halt
from trainjob.cli.named import references
from trainjob.cli.story import Story
from trainjob.client import Cluster, LogFollower, LogLine, ObjectEvent
from trainjob.client.whole_log import read_log
from trainjob.errors import AdmissionRefused, NotFound
from trainjob.lifecycle import JobReference, JobSelector, wait_external
from trainjob.status.pods import container_statuses, rank_of, step_of
from trainjob.status.reading import number, text

__all__ = ["logs"]

_NAME = typer.Argument(
    help="A TrainJob, by name or as NAMESPACE/NAME.", show_default=False, autocompletion=completion.trainjobs
)
_FOLLOW = typer.Option("--follow", "-f", help="Go on until the TrainJob has ended.", show_default=False)
_STEP = typer.Option(help="Of this step only, such as node or dataset-initializer.", show_default=False)
_RANK = typer.Option(help="Of this rank only.", min=0, show_default=False)
_PREVIOUS = typer.Option("--previous", "-p", help="Of the containers' runs before their last restart.")
_LAST_SECONDS = 10.0  # how long to continue reading after the end

_Choice = Callable[[Mapping[str, Any]], bool]


def logs(
    name: Annotated[str, _NAME],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    follow: Annotated[bool, _FOLLOW] = False,
    step: Annotated[str, _STEP] = "",
    rank: Annotated[int | None, _RANK] = None,
    previous: Annotated[bool, _PREVIOUS] = False,
) -> None:
    """Print the logs of a TrainJob: of all steps and ranks, each line as `[STEP-RANK] text`.

    Without `--follow`, what is there now, container after container. With it, lines of all of them as they come, those
    of pods that appear later and of containers that restart included, until the TrainJob has ended. Frames of progress
    bars are left out.

    Args:
        name: which, whoever made it.
        namespace: where; empty for the kubeconfig's own.
        follow: go on until its end.
        step: of one step only.
        rank: of one rank only.
        previous: of the runs before the last restarts.

    Raises:
        NotFound: there is no such TrainJob.
        ClusterError: the cluster can't be asked.
    """
    if follow and previous:
        raise typer.BadParameter("what ran before can't be followed: leave one of --follow and --previous out")

    def chosen(pod: Mapping[str, Any]) -> bool:
        return step in ("", step_of(pod)) and rank in (None, rank_of(pod))

    with terminal.cluster() as cluster:
        [reference] = references(cluster, [name], namespace)
        if follow:
            asyncio.run(_follow(cluster, reference, chosen))
        else:
            _print(cluster, reference, chosen, previous=previous)


def _print(cluster: Cluster, reference: JobReference, chosen: _Choice, *, previous: bool) -> None:
    pods = [pod for pod in cluster.list_pods(reference.name, reference.namespace) if chosen(pod)]
    if not pods:
        terminal.errors().print(f"TrainJob {escape(str(reference))} has no such pods, or not any more")
    for pod in sorted(pods, key=lambda pod: (text(pod, "metadata", "creationTimestamp"), step_of(pod), rank_of(pod))):
        for container in container_statuses(pod):
            if previous and not number(container, "restartCount"):
                continue
            try:
                read_log(cluster, pod, text(container, "name"), _print_line, previous=previous)
            except (AdmissionRefused, NotFound) as error:  # not started, or already deleted
                terminal.errors().print(f"\\[{step_of(pod)}-{rank_of(pod)}] {escape(error.message)}")


def _print_line(line: LogLine) -> None:
    if not line.frame:
        print(line, flush=True)


async def _follow(cluster: Cluster, reference: JobReference, chosen: _Choice) -> None:
    halt = Halt()
    with Story(terminal.console(), halt) as story:

        def emit(line: LogLine) -> None:
            if not line.frame:
                story.tell(str(line))

        follower = LogFollower(cluster, reference.namespace, emit)

        def observe(change: ObjectEvent) -> None:
            if change.found is not None and chosen(change.found):
                follower.observe(change)

        try:
            with cluster.pod_informer(reference.namespace).add_event_handler(reference.name, observe):
                await halt.unless(wait_external(cluster, JobSelector(reference.namespace, reference.name)))
                for pod in await asyncio.to_thread(cluster.list_pods, reference.name, reference.namespace):
                    observe(ObjectEvent(pod))  # the watch of pods may lag behind that of the TrainJob
                await halt.unless(asyncio.to_thread(follower.finish, _LAST_SECONDS))
        finally:
            follower.stop()

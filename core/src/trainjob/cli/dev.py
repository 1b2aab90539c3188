"""`trainjob dev`: run a training again after each change of its project."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import request_file, terminal
from trainjob.cli.follow import StartOver, follow
from trainjob.cli.interruption import Interrupted
from trainjob.cli.project_watch import ProjectWatch
from trainjob.cli.request_file import UserRequest
from trainjob.cli.runtime_files import create_runtimes
from trainjob.client import Cluster
from trainjob.manifest.code import unpacking_command
from trainjob.manifest.compatibility import uses_stock_mpi
from trainjob.project_code import pack
from trainjob.spec import Code, CustomTrainerContainer, TrainJob
from trainjob.spec.base import invalid_field
from trainjob.spec.code import ChangingCode, PackedCode
from trainjob.spec.durations import parse_duration
from trainjob.status import Outcome

__all__ = ["dev"]

_IDLE = typer.Option(
    metavar="DURATION",
    help="The TrainJob ends after this time without a run and without a change, such as 30m or 2h. So it frees its "
    "GPUs even if the command was killed.",
)


def dev(
    file: Annotated[str, request_file.FILE],
    namespace: Annotated[str, request_file.NAMESPACE] = "",
    idle: Annotated[str, _IDLE] = "30m",
    keep_colors: Annotated[bool, terminal.KEEP_COLORS] = False,
) -> None:
    """Run a training of a project again after each change of its files, until Ctrl-C.

    The pods of one TrainJob stay. After each change, the command sends the files that differ, and the pods end the run
    and start another one. On a torch runtime, a module or script starts in a process that has imported torch before.
    An error in a file, or a failed run, does not end the pods.

    The file has one TrainJob whose trainer has code, a folder, and module, script or command. Its experiment tracker
    and its watchdog are left out, because they treat each TrainJob as one run.

    Ctrl-C or SIGTERM deletes the TrainJob. If the command is killed, running it again adopts the TrainJob, or replaces
    it if the files have changed since. The account needs the Role of manifests/dev; without the permission to patch
    pods, a change may take 90 s to reach them.

    Example: trainjob dev tickets.yaml -n team-a
    """
    content = request_file.read_file(file, "", "")
    if len(content.requests) != 1:
        raise invalid_field("FILE", file, f"it must have one TrainJob, and has {len(content.requests)} requests")
    seconds = parse_duration(idle, "--idle").total_seconds()
    if not seconds:
        raise invalid_field("--idle", idle, "it must be longer than 0 s")
    request = _to_dev_request(content.requests[0], file, seconds)
    with terminal.open_cluster() as cluster:
        create_runtimes(cluster, content.runtimes, namespace, file, replace=False)
        try:
            outcome = _follow(cluster, request, namespace, keep_colors=keep_colors)
        except Interrupted as stopped:
            raise typer.Exit(stopped.exit_code) from None
    outcome.raise_for_failure()


def _follow(cluster: Cluster, request: UserRequest, namespace: str, *, keep_colors: bool) -> Outcome:
    """Submit the TrainJob, send the changes, and return the outcome of the last TrainJob."""
    while True:
        watch = ProjectWatch(cluster, _get_code(request), partial(_repack, request))
        try:
            return follow(
                cluster,
                request,
                namespace,
                terminal.console(),
                keep_colors=keep_colors,
                on_submitted=watch.on_submitted,
            )
        except StartOver as replacement:
            request = replacement.request
        finally:
            watch.stop()


def _to_dev_request(given: UserRequest, file: str, idle_seconds: float) -> UserRequest:
    """Return the request whose pods wait for changes, under a run key of its own.

    Raises:
        InvalidSpec: it is no training of a project that can run again.
    """
    job = given.request
    needed = "`trainjob dev` needs a TrainJob with a trainer that has code, and module, script or command"
    if not isinstance(job, TrainJob):
        raise invalid_field("step", type(job).__name__, needed)
    trainer = job.trainer
    if not isinstance(trainer, CustomTrainerContainer):
        raise invalid_field("trainer", type(trainer).__name__, needed)
    code = trainer.code
    if not isinstance(code, PackedCode):
        raise invalid_field("trainer.code", None, f'{needed}: give the folder of the project, such as code: "."')
    if not Path(code.path).is_dir():
        raise invalid_field("trainer.code", code.path, "`trainjob dev` needs the folder of the project, not an archive")
    if uses_stock_mpi(job):
        rule = "`trainjob dev` can't run again what mpirun starts: use a runtime without MPI"
        raise invalid_field("runtime", job.runtime.name, rule)
    # A host name keeps apart the containers of two persons, who often have the same user and paths.
    key = replace(given.key, task=f"dev-{given.key.task}", run=str(Path(file).absolute()), origin=socket.gethostname())
    request = job.model_copy(update={"tracking": None, "watchdog": None, "on_kill": "delete"})
    return replace(given, request=_set_code(request, code, idle_seconds), key=key)


def _set_code(job: TrainJob, code: PackedCode, idle_seconds: float) -> TrainJob:
    changing = ChangingCode(**dict(code), idle_seconds=idle_seconds)
    return job.model_copy(update={"trainer": job.trainer.model_copy(update={"code": changing})})


def _get_code(given: UserRequest) -> ChangingCode:
    code = getattr(given.request.trainer, "code", None) if isinstance(given.request, TrainJob) else None
    if not isinstance(code, ChangingCode):
        raise TypeError(f"the request has {type(code).__name__}")
    return code


def _repack(given: UserRequest) -> UserRequest:
    """Return the request with the present files of its project.

    Raises:
        InvalidSpec: they cannot be sent.
    """
    code = _get_code(given)
    packed = pack(Code(path=code.path, requirements=code.requirements), Path("/"))
    request = given.request
    if not isinstance(request, TrainJob):
        raise TypeError(f"the request is {type(request).__name__}")
    job = _set_code(request, packed, code.idle_seconds)
    unpacking_command(job, packed, (), "")  # refuses code that needs a workspace
    return replace(given, request=job)

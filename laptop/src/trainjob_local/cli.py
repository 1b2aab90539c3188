"""The commands `trainjob local`, which start, list and stop laptop clusters, and delete their environments."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from uv import find_uv_bin

from trainjob.cli import table_format, terminal
from trainjob.cli.command_help import add_command
from trainjob.cli.terminal import escape
from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.programs.fetch.progress import format_size
from trainjob.status import derive_verdict
from trainjob_local import LocalCluster
from trainjob_local.environments import (
    EnvironmentInUse,
    delete_environment,
    environments_folder,
    list_environments,
)
from trainjob_local.running_clusters import ClusterRecord, list_clusters, stop_cluster

__all__ = ["commands"]

_STATE = typer.Option(
    help="Folder for objects, volumes and logs; it remains when the cluster stops. Default: a temporary folder."
)
_ENVIRONMENT = typer.Option(
    "--environment",
    metavar="NAME=DIR",
    help="Python environment that replaces container images; NAME is initializer, torchtune, trl, llamafactory, "
    "runtimes, or a word in the image's name. Default: environments that are created on first use. May be repeated.",
)
_POD_ENV = typer.Option(
    "--pod-env", metavar="NAME=VALUE", help="Environment variable of every pod, such as HF_ENDPOINT. May be repeated."
)
_PORT = typer.Option(
    help="Port on 127.0.0.1. Default: the previous port of the folder, or a free port.", show_default=False
)
_RUNNING_STATE = typer.Option(
    "--state", help="Folder of the cluster; required if several clusters run.", show_default=False
)


def commands() -> typer.Typer:
    """Return the Typer group of the subcommands."""
    group = typer.Typer(help="Run a Kubernetes cluster with Kubeflow Trainer on this machine, without containers.")
    group.callback()(_group)
    add_command(group, "up", up)
    add_command(group, "status", status)
    add_command(group, "down", down)
    add_command(group, "clean", clean)
    return group


def _group() -> None:
    """Do nothing; makes typer show the subcommands."""


def up(
    state: Annotated[Path | None, _STATE] = None,
    environment: Annotated[list[str] | None, _ENVIRONMENT] = None,
    pod_env: Annotated[list[str] | None, _POD_ENV] = None,
    port: Annotated[int, _PORT] = 0,
) -> None:
    """Run a laptop cluster until Ctrl-C or `trainjob local down`.

    The cluster has an API server, the controllers of Kubeflow Trainer and a kubelet that runs pods as local processes.
    The command prints the path of its kubeconfig.

    Example: trainjob local up --state ~/laptop-cluster
    """
    environments = dict(_parse_pairs("--environment", environment or [], secret=False))
    variables = dict(_parse_pairs("--pod-env", pod_env or [], secret=True))
    stop_requested = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_requested.set())
    with LocalCluster(state, environments, variables, port) as cluster, ThreadPoolExecutor(1) as threads:
        _print_started(cluster, kept=state is not None)
        ended = threads.submit(cluster.wait_ended)
        ended.add_done_callback(lambda _: stop_requested.set())
        stop_requested.wait()
        if ended.done():
            ended.result()
            terminal.console().print("The laptop cluster was stopped by another process.")
        cluster.stop()


def status(as_json: Annotated[bool, terminal.JSON] = False) -> None:
    """List the running laptop clusters of this user.

    The list includes the clusters of programs that use `LocalCluster`.

    With --json: a list of objects with state, server, kubeconfig, pid, started, temporary, trainjobs and
    active. `temporary` is true if the folder is deleted with the cluster. `trainjobs` is the number of its TrainJobs
    and `active` the number of unfinished ones; both are null if the cluster does not respond.
    """
    found = [(one, *_counts(one)) for one in list_clusters()]
    if as_json:
        names = ("state", "server", "kubeconfig", "pid", "started", "temporary")
        clusters = [{name: getattr(one, name) for name in names} | {"trainjobs": n, "active": m} for one, n, m in found]
        terminal.print_json(clusters)
    elif found:
        table = table_format.create_table("STATE", "SERVER", "PID", "AGE", "TRAINJOBS", "KUBECONFIG")
        for one, count, active in found:
            jobs = "no response" if count is None else f"{active} active of {count}"
            facts = (one.state, one.server, str(one.pid), table_format.format_age(one.started), jobs, one.kubeconfig)
            table.add_row(*map(escape, facts))
        table_format.print_table(terminal.console(), table)
    else:
        terminal.error_console().print("no laptop cluster is running")


def down(state: Annotated[Path | None, _RUNNING_STATE] = None) -> None:
    """Stop a laptop cluster and its pods.

    The folder of the cluster remains, unless it is a temporary one.
    """
    found = [one for one in list_clusters() if state is None or Path(one.state) == state.absolute()]
    if len(found) > 1:
        there = ", ".join(one.state for one in found)
        raise InvalidSpec(Problem("--state", "nothing", f"several laptop clusters are running; select one of: {there}"))
    for one in found:
        if stop_cluster(one):
            kept = "its folder was deleted" if one.temporary else f"its folder remains: {one.state}"
            terminal.error_console().print(f"the laptop cluster at {escape(one.server)} was stopped; {escape(kept)}")
            return
    where = f" in {state}" if state else ""
    terminal.error_console().print(escape(f"no laptop cluster is running{where}"))


def clean(as_json: Annotated[bool, terminal.JSON] = False) -> None:
    """Delete the environments that laptop clusters have created.

    The next cluster that needs an environment creates it again. An environment that a running cluster uses is not
    deleted, and the exit code is then 1. Packages that you added to an environment are deleted with it.

    With --json: a list of objects with name, path, bytes and deleted.
    """
    found: list[dict[str, Any]] = []
    in_use = None
    for one in list_environments():
        size = one.measure_bytes()
        try:
            delete_environment(one)
        except EnvironmentInUse as error:
            in_use = error
        found.append({"name": one.name, "path": str(one.path), "bytes": size, "deleted": not one.path.exists()})
    if as_json:
        terminal.print_json(found)
    elif found:
        table = table_format.create_table("ENVIRONMENT", "SIZE", "RESULT", "PATH")
        for row in found:
            result = "deleted" if row["deleted"] else "in use"
            table.add_row(*map(escape, (row["name"], format_size(row["bytes"]), result, row["path"])))
        table_format.print_table(terminal.console(), table)
        if any(row["deleted"] for row in found):
            uv = escape(shlex.join([find_uv_bin(), "cache", "clean"]))
            terminal.error_console().print(f"uv's cache still has the downloaded packages; this deletes them: {uv}")
    else:
        terminal.error_console().print(f"no environments in {escape(str(environments_folder()))}")
    if in_use:
        raise in_use


def _counts(record: ClusterRecord) -> tuple[int | None, int | None]:
    """Return the number of a cluster's TrainJobs, and how many of them have not ended.

    Both are None if the cluster does not answer.
    """
    from trainjob.client import Cluster, Connection

    with (
        contextlib.suppress(TrainJobError),
        contextlib.closing(Cluster(Connection(kubeconfig=record.kubeconfig), retry_seconds=0.0)) as cluster,
    ):
        jobs = cluster.list_trainjobs(None, "")
        return len(jobs), sum(not derive_verdict(job).phase.finished for job in jobs)
    return None, None


def _parse_pairs(option: str, texts: Sequence[str], *, secret: bool) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec(Problem(option, "***" if secret else repr(text), "write it as NAME=VALUE"))
        found.append((name, value))
    return found


def _print_started(cluster: LocalCluster, *, kept: bool) -> None:
    console = terminal.console()
    console.print(f"[bold green]The laptop cluster is up[/] at {escape(cluster.server)}")
    console.print(f"  kubeconfig  {escape(str(cluster.kubeconfig))}")
    console.print(f"  state       {escape(str(cluster.state))}{'' if kept else '  (deleted with the cluster)'}")
    console.print("\nIn another shell:\n")
    console.print(f"  export KUBECONFIG={escape(shlex.quote(str(cluster.kubeconfig)))}")
    console.print("  kubectl get clustertrainingruntimes        # or any Kubernetes client\n")
    console.print("Stop it with Ctrl-C.")

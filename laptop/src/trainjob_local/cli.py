"""The commands `trainjob local`, which start, list and stop laptop clusters."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trainjob.cli import table_format, terminal
from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.status import derive_verdict
from trainjob_local import LocalCluster
from trainjob_local.running_clusters import ClusterRecord, list_clusters, stop_cluster

__all__ = ["commands"]

_STATE = typer.Option(help="Folder that keeps objects, volumes and logs over restarts; a temporary one by default.")
_ENVIRONMENT = typer.Option(
    "--environment", metavar="NAME=DIR", help="Local environment that stands for images: initializer or torchtune."
)
_POD_ENV = typer.Option(
    "--pod-env", metavar="NAME=VALUE", help="Environment variable of every pod, such as HF_ENDPOINT."
)
_PORT = typer.Option(help="Port on 127.0.0.1; the one it had before, or a free one, by default.")
_RUNNING_STATE = typer.Option(
    "--state", help="The folder of the cluster; needed where several run.", show_default=False
)


def commands() -> typer.Typer:
    """Return the Typer group of the subcommands."""
    group = typer.Typer(help="A Kubernetes cluster with Kubeflow Trainer on this machine, without containers.")
    group.callback()(_group)
    group.command("up", help="Run the laptop cluster until Ctrl-C, or `trainjob local down`.")(up)
    group.command("status", help="Tell which laptop clusters run on this machine.")(status)
    group.command("down", help="End a laptop cluster, and its pods.")(down)
    return group


def _group() -> None:
    """A Kubernetes cluster with Kubeflow Trainer on this machine, without containers."""


def up(
    state: Annotated[Path | None, _STATE] = None,
    environment: Annotated[list[str] | None, _ENVIRONMENT] = None,
    pod_env: Annotated[list[str] | None, _POD_ENV] = None,
    port: Annotated[int, _PORT] = 0,
) -> None:
    """Run the laptop cluster until Ctrl-C, or until somebody ends it with `trainjob local down`.

    Args:
        state: folder that keeps everything; None for a temporary one.
        environment: `NAME=DIR` pairs of local environments.
        pod_env: `NAME=VALUE` pairs, the environment of every pod.
        port: TCP port; 0 for the one it had, or a free one.

    Raises:
        InvalidSpec: a pair has no `=`.
        ClusterError: the cluster did not start, or has died.
    """
    environments = dict(_parse_pairs("--environment", environment or [], secret=False))
    variables = dict(_parse_pairs("--pod-env", pod_env or [], secret=True))
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    with LocalCluster(state, environments, variables, port) as cluster, ThreadPoolExecutor(1) as threads:
        _print_started(cluster, kept=state is not None)
        ended = threads.submit(cluster.wait_ended)
        ended.add_done_callback(lambda _: asked.set())
        asked.wait()
        if ended.done():
            ended.result()
            terminal.console().print("It was ended.")
        cluster.stop()


def status(as_json: Annotated[bool, terminal.JSON] = False) -> None:
    """Tell which laptop clusters of this user run: also those of programs that use `LocalCluster`.

    As JSON: a list of objects with `state`, `server`, `kubeconfig`, `pid`, `started`, `temporary` (whether the folder
    goes with the cluster), `trainjobs` and `at_work` (how many of them have not ended; both null where it does not
    answer).

    Args:
        as_json: for programs.
    """
    found = [(one, *_counts(one)) for one in list_clusters()]
    if as_json:
        names = ("state", "server", "kubeconfig", "pid", "started", "temporary")
        told = [{name: getattr(one, name) for name in names} | {"trainjobs": n, "at_work": m} for one, n, m in found]
        terminal.print_json(told)
    elif found:
        table = table_format.create_table("STATE", "SERVER", "PID", "AGE", "TRAINJOBS", "KUBECONFIG")
        for one, trainjobs, at_work in found:
            jobs = "does not answer" if trainjobs is None else f"{at_work} at work of {trainjobs}"
            facts = (one.state, one.server, str(one.pid), table_format.format_age(one.started), jobs, one.kubeconfig)
            table.add_row(*map(escape, facts))
        table_format.print_table(terminal.console(), table)
    else:
        terminal.error_console().print("no laptop cluster runs")


def down(state: Annotated[Path | None, _RUNNING_STATE] = None) -> None:
    """End a laptop cluster and its pods; its folder stays where it was named at its start.

    Args:
        state: its folder; None where only one runs.

    Raises:
        InvalidSpec: several run, and none is named.
    """
    found = [one for one in list_clusters() if state is None or Path(one.state) == state.absolute()]
    if len(found) > 1:
        there = ", ".join(one.state for one in found)
        raise InvalidSpec(Problem("--state", "nothing", f"several laptop clusters run, so name one: {there}"))
    for one in found:
        if stop_cluster(one):
            kept = "its folder went with it" if one.temporary else f"its folder stays: {one.state}"
            terminal.error_console().print(f"the laptop cluster at {escape(one.server)} was ended; {escape(kept)}")
            return
    where = f" in {state}" if state else ""
    terminal.error_console().print(escape(f"no laptop cluster runs{where}"))


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
    console.print(f"  state       {escape(str(cluster.state))}{'' if kept else '  (goes with the cluster)'}")
    console.print("\nIn another shell:\n")
    console.print(f"  export KUBECONFIG={escape(str(cluster.kubeconfig))}")
    console.print("  kubectl get clustertrainingruntimes        # or any Kubernetes client\n")
    console.print("Stop it with Ctrl-C.")

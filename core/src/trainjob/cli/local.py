"""`trainjob local`: the laptop cluster for people."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from trainjob.errors import InvalidSpec, Problem
from trainjob.local import LocalCluster

__all__ = ["commands"]

_STATE = typer.Option(help="Folder that keeps objects, volumes and logs over restarts; a temporary one by default.")
_ENVIRONMENT = typer.Option(
    "--environment", metavar="NAME=DIR", help="Local environment that stands for images: initializer or torchtune."
)
_POD_ENV = typer.Option(
    "--pod-env", metavar="NAME=VALUE", help="Environment variable of every pod, such as HF_ENDPOINT."
)
_PORT = typer.Option(help="Port on 127.0.0.1; the one it had before, or a free one, by default.")


def commands() -> typer.Typer:
    """Builds the subcommands."""
    group = typer.Typer(help="A Kubernetes cluster with Kubeflow Trainer on this machine, without containers.")
    group.callback()(_group)
    group.command("up", help="Run the laptop cluster until Ctrl-C.")(up)
    return group


def _group() -> None:
    """A Kubernetes cluster with Kubeflow Trainer on this machine, without containers."""


def up(
    state: Annotated[Path | None, _STATE] = None,
    environment: Annotated[list[str] | None, _ENVIRONMENT] = None,
    pod_env: Annotated[list[str] | None, _POD_ENV] = None,
    port: Annotated[int, _PORT] = 0,
) -> None:
    """Run the laptop cluster until Ctrl-C.

    Args:
        state: folder that keeps everything; None for a temporary one.
        environment: `NAME=DIR` pairs of local environments.
        pod_env: `NAME=VALUE` pairs, the environment of every pod.
        port: TCP port; 0 for the one it had, or a free one.

    Raises:
        InvalidSpec: a pair has no `=`.
        ClusterError: the cluster did not start.
    """
    environments = dict(_pairs("--environment", environment or [], secret=False))
    variables = dict(_pairs("--pod-env", pod_env or [], secret=True))
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with LocalCluster(state, environments, variables, port) as cluster:
        _tell(cluster, kept=state is not None)
        over.wait()


def _pairs(option: str, given: Sequence[str], *, secret: bool) -> list[tuple[str, str]]:
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec(Problem(option, "***" if secret else repr(text), "write it as NAME=VALUE"))
        found.append((name, value))
    return found


def _tell(cluster: LocalCluster, *, kept: bool) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold green]The laptop cluster is up[/] at {escape(cluster.server)}")
    console.print(f"  kubeconfig  {escape(str(cluster.kubeconfig))}")
    console.print(f"  state       {escape(str(cluster.state))}{'' if kept else '  (goes with the cluster)'}")
    console.print("\nIn another shell:\n")
    console.print(f"  export KUBECONFIG={escape(str(cluster.kubeconfig))}")
    console.print("  kubectl get clustertrainingruntimes        # or any Kubernetes client\n")
    console.print("Stop it with Ctrl-C.")

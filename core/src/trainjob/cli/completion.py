"""What a shell offers after TAB: names that the cluster has, within a moment, or nothing at all.

Typer asks these functions; it installs itself in bash, zsh, fish and PowerShell with `--install-completion`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import typer

from trainjob.client import Cluster, Connection
from trainjob.client.runtimes import KINDS
from trainjob.errors import ClusterError, TrainJobError
from trainjob.status.reading import text

__all__ = ["NAMESPACE", "namespaces", "runtimes", "trainjobs"]

_SECONDS = 2.0  # a person waits at the prompt


def trainjobs(context: typer.Context, incomplete: str) -> list[str]:
    """The names of a namespace's TrainJobs that begin like this and are not on the command line yet."""
    given = [name for value in context.params.values() if isinstance(value, list | tuple) for name in value]

    def names(cluster: Cluster) -> list[str]:
        jobs = cluster.list_trainjobs(context.params.get("namespace") or cluster.namespace, "")
        return [text(job, "metadata", "name") for job in jobs]

    return [name for name in _asked(context, names, incomplete) if name not in given]


def runtimes(context: typer.Context, incomplete: str) -> list[str]:
    """The names of the training runtimes that begin like this: the cluster's, and the namespace's own."""

    def names(cluster: Cluster) -> list[str]:
        found: list[str] = []
        for kind in KINDS:
            with contextlib.suppress(ClusterError):  # who may read one kind is offered that one
                namespace = context.params.get("namespace") or cluster.namespace
                found += [one.name for one in cluster.runtimes.all(kind, namespace)]
        return found

    return _asked(context, names, incomplete)


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """The namespaces that begin like this."""
    return _asked(context, lambda cluster: cluster.list_namespaces(), incomplete)


NAMESPACE = typer.Option(
    "--namespace", "-n", help="Where; the kubeconfig's own by default.", show_default=False, autocompletion=namespaces
)


def _asked(context: typer.Context, names: Callable[[Cluster], list[str]], incomplete: str) -> list[str]:
    """On a thread that nobody waits for longer: without a cluster there is nothing to offer, and nothing to say."""
    root = context.find_root().params
    connection = Connection(kubeconfig=str(root.get("kubeconfig") or ""), context=root.get("context") or "")
    found: list[str] = []

    def ask() -> None:
        with contextlib.suppress(TrainJobError), contextlib.closing(Cluster(connection, patience=0.0)) as cluster:
            found.extend(names(cluster))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return sorted({name for name in list(found) if name.startswith(incomplete)})

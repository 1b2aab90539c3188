"""Completion of names in a shell, with names from the cluster.

If the cluster does not answer within 2 s, the shell offers no names. Typer calls these functions. Its option
`--install-completion` installs the completion in bash, zsh, fish and PowerShell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import typer

from trainjob.client import Cluster, Connection
from trainjob.client.runtimes import RUNTIME_KINDS
from trainjob.errors import ClusterError, OutOfThreads, TrainJobError
from trainjob.status.nested_fields import get_str
from trainjob.threads import start_thread

__all__ = ["NAMESPACE", "complete_runtimes", "complete_trainjobs", "create_namespace_option"]

_TIMEOUT_SECONDS = 2.0  # the user waits at the prompt


def complete_trainjobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the namespace's TrainJobs that start with a text.

    Names that are already on the command line are left out.
    """
    given = [name for value in context.params.values() if isinstance(value, list | tuple) for name in value]

    def list_names(cluster: Cluster) -> list[str]:
        jobs = cluster.list_trainjobs(context.params.get("namespace") or cluster.namespace, "")
        return [get_str(job, "metadata", "name") for job in jobs]

    return [name for name in _complete(context, list_names, incomplete) if name not in given]


def complete_runtimes(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the training runtimes that start with a text.

    These are the ClusterTrainingRuntimes and the namespace's TrainingRuntimes.
    """

    def list_names(cluster: Cluster) -> list[str]:
        found: list[str] = []
        for kind in RUNTIME_KINDS:
            with contextlib.suppress(ClusterError):  # if the user may list only one kind, offer that kind
                namespace = context.params.get("namespace") or cluster.namespace
                found += [one.name for one in cluster.runtimes.list_all(kind, namespace)]
        return found

    return _complete(context, list_names, incomplete)


def _complete_namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the namespaces that start with a text."""
    return _complete(context, lambda cluster: cluster.list_namespaces(), incomplete)


def create_namespace_option(description: str) -> Any:
    """Return the option `--namespace` with this help text; the shell completes its value."""
    return typer.Option("--namespace", "-n", help=description, show_default=False, autocompletion=_complete_namespaces)


NAMESPACE = create_namespace_option("Namespace. Default: that of the kubeconfig's context.")


def _complete(context: typer.Context, list_names: Callable[[Cluster], list[str]], incomplete: str) -> list[str]:
    """Return the names that start with a text, read from the cluster on a thread.

    The shell waits at most 2 s for the thread. Without a cluster, the result is empty, and no error is printed.
    """
    root = context.find_root().params
    connection = Connection(kubeconfig=str(root.get("kubeconfig") or ""), context=root.get("context") or "")
    found: list[str] = []

    def fetch_names() -> None:
        with contextlib.suppress(TrainJobError), contextlib.closing(Cluster(connection, retry_seconds=0.0)) as cluster:
            found.extend(list_names(cluster))

    with contextlib.suppress(OutOfThreads):
        start_thread(fetch_names, name="completion").join(_TIMEOUT_SECONDS)
    return sorted({name for name in list(found) if name.startswith(incomplete)})

"""Lookup of the TrainJobs that a user names on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from trainjob.cli import completion
from trainjob.client import Cluster
from trainjob.errors import NotFound
from trainjob.lifecycle import JobReference, reference_to

_MAX_LISTED = 10

NAMES = typer.Argument(
    metavar="NAME",
    help="TrainJobs, each as NAME or NAMESPACE/NAME.",
    show_default=False,
    autocompletion=completion.complete_trainjobs,
)


def get_trainjobs(cluster: Cluster, names: Sequence[str], namespace: str) -> list[dict[str, Any]]:
    """Return the TrainJobs of these names, in this order and each once.

    It does not matter which tool created a TrainJob.

    Args:
        cluster: the cluster.
        names: names, each plain or as `namespace/name`, the form in which the commands print them.
        namespace: namespace of plain names; empty means the connection's.

    Raises:
        NotFound: TrainJobs do not exist; the error names all of them, and lists the existing ones.
        ClusterError: the cluster cannot be reached or refuses.
    """
    places = list(dict.fromkeys(_split_name(name, namespace or cluster.namespace) for name in names))
    found = {place: cluster.get_trainjob(place[1], place[0]) for place in places}
    missing = [place for place, job in found.items() if job is None]
    if missing:
        raise _not_found(cluster, missing)
    return [job for job in found.values() if job is not None]


def get_references(cluster: Cluster, names: Sequence[str], namespace: str) -> list[JobReference]:
    """Return references to the TrainJobs of these names; see [get_trainjobs][]."""
    return [reference_to(job, adopted=True) for job in get_trainjobs(cluster, names, namespace)]


def _split_name(name: str, namespace: str) -> tuple[str, str]:
    own, slash, plain = name.partition("/")
    return (own, plain) if slash else (namespace, name)


def _not_found(cluster: Cluster, missing: Sequence[tuple[str, str]]) -> NotFound:
    hints = []
    for namespace in dict.fromkeys(namespace for namespace, _ in missing):
        there = [_name(job) for job in cluster.list_trainjobs(namespace, selector="")]
        missing_names = [name for each, name in missing if each == namespace]
        close = [near for name in missing_names for near in difflib.get_close_matches(name, there, n=1)]
        listed = list(dict.fromkeys([*close, *there]))[:_MAX_LISTED]
        more = f" and {len(there) - len(listed)} more" if len(there) > len(listed) else ""
        meant = f"did you mean {', '.join(close)}? " if close else ""
        hints.append(f"{meant}namespace {namespace} has {', '.join(listed) or 'no TrainJobs'}{more}")
    names = ", ".join("/".join(place) for place in missing)
    return NotFound(f"there is no TrainJob {names}", hint="; ".join(hints), status=404, reason="NotFound")


def _name(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["name"])

"""Check of the labels and annotations of a created TrainJob, which admission policies can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import AdmissionRefused, ClusterError, MetadataChanged, NotFound, PermissionDenied
from trainjob.manifest import labels
from trainjob.status.nested_fields import get_mapping


def find_changes(job: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sent labels and annotations of this project that were changed.

    Keys that others may write, such as `app.kubernetes.io/managed-by`, do not count.

    Args:
        job: the TrainJob as the API server returned it.
        sent: the metadata as it was sent.

    Returns:
        The sent values by key, for `labels` and `annotations`; empty if nothing was changed.
    """
    changes: dict[str, Any] = {}
    for kind in ("labels", "annotations"):
        found = get_mapping(job, "metadata", kind)
        own = {key: value for key, value in sent[kind].items() if key.startswith(f"{labels.PREFIX}/")}
        if changed := {key: value for key, value in own.items() if found.get(key) != value}:
            changes[kind] = changed
    return changes


def restore_metadata(cluster: Cluster, created: Mapping[str, Any], sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a created TrainJob; write labels and annotations that were changed again.

    Without them, waiters, retries, kills and sweeps would not find the TrainJob. If the second write has no effect
    either, the TrainJob is deleted.

    Args:
        cluster: the cluster of the TrainJob.
        created: the TrainJob as the API server returned it.
        sent: the metadata as it was sent.

    Raises:
        MetadataChanged: the cluster changed the labels or annotations again.
        ClusterError: a request failed; the TrainJob may exist.
    """
    if not (changes := find_changes(created, sent)):
        return created
    meta, refusal = created["metadata"], ""
    try:
        patched = cluster.patch_trainjob(meta["name"], meta["namespace"], meta["uid"], **changes)
        if not (changes := find_changes(patched, sent)):
            return patched
    except NotFound:  # it was deleted, which its waiter reports
        return created
    except (AdmissionRefused, PermissionDenied) as error:
        refusal = f" They could not be written again: {error.message}."
    raise MetadataChanged(
        f"the cluster changed {_join_keys(changes)} of TrainJob {meta['namespace']}/{meta['name']} when it was created."
        f"{refusal} {_delete(cluster, meta)}",
        hint=f"have an administrator exclude the keys {labels.PREFIX}/* from the mutating admission policy or webhook "
        "that changes TrainJobs",
    )


def _join_keys(changes: Mapping[str, Any]) -> str:
    return " and ".join(f"the {kind} {', '.join(sorted(keys))}" for kind, keys in changes.items())


def _delete(cluster: Cluster, meta: Mapping[str, Any]) -> str:
    """Delete a TrainJob, and return the result as a sentence."""
    try:
        cluster.delete_trainjob(meta["name"], meta["namespace"], meta["uid"])  # it has just been created
    except ClusterError as error:
        command = f"kubectl delete trainjob {meta['name']} -n {meta['namespace']}"
        return f"It continues to run, because it could not be deleted: {error.message}. Delete it with: {command}"
    return "It was deleted, because retries, kills and sweeps would not find it"

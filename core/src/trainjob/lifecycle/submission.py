"""Submit or adopt: whatever died or was lost before, one run key has one TrainJob that counts.

The cluster is the only memory. Every TrainJob carries its run key and the hash of what was asked for, and its name is
made from the run key and the attempt's number, so that two who do this at once - a retry beside a slow first try, an
answer lost and asked for again - want the same name, and the loser of that race reads the winner's job back and adopts
it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Backoff, Cluster
from trainjob.errors import (
    AdmissionRefused,
    ClusterError,
    Conflict,
    OwnershipConflict,
    WaitTimeout,
)
from trainjob.lifecycle.adoption import adopt
from trainjob.lifecycle.identity import JobReference, RunKey
from trainjob.lifecycle.plan import attempt_of, plan
from trainjob.lifecycle.prepared_job import manifest_of, prepare
from trainjob.lifecycle.runtime_checks import check_runtime
from trainjob.manifest import labels
from trainjob.spec import Step, TrainJob, TrainJobManifest

# What strict field validation says (k8s.io/apimachinery, runtime.NewStrictDecodingError).
_UNKNOWN_FIELD = "unknown field"


def submit(
    cluster: Cluster,
    request: Step | TrainJob,
    key: RunKey,
    *,
    namespace: str = "",
    prefix: str = "",
    since: datetime | None = None,
    variables: Mapping[str, str] | None = None,
    renewal: str = "",
    known: JobReference | None = None,
    patience: float = 120.0,
    before_create: Callable[[str, str], None] | None = None,
    owner: Mapping[str, Any] | None = None,
) -> JobReference:
    """Have one TrainJob work for this run key: an earlier one that still counts, or a new attempt.

    Args:
        cluster: where.
        request: a step such as `FineTune`, any `TrainJob`, or a `TrainJobManifest`.
        key: who asks; the same over retries.
        namespace: where; empty means the manifest's own, or the connection's.
        prefix: begins the TrainJob's name where the request does not say; empty means the key's task.
        since: when the run of the workflow began, with a time zone: a TrainJob that succeeded for an earlier run of the
            same name is not taken over.
        variables: environment variables for the trainer that are no part of the request, such as who started it:
            other values don't keep an earlier TrainJob from being adopted.
        renewal: another text each time that a person asks for the work to be done again: a TrainJob that succeeded
            under another one is not taken over, however often the new try is killed before it has made its own.
        known: what the caller remembers of an earlier TrainJob of this key. It counts as one that carries the key, also
            when it does not: the key has changed meanwhile, or the namespace.
        patience: seconds to keep trying while the cluster can't answer or an earlier job is still being deleted.
        before_create: called with name and namespace right before each request that creates a TrainJob is sent; from
            then on, whatever happens, there may be one. What it raises ends this.
        owner: an ownerReference for what is created, such as the workflow's: the TrainJob goes when its owner goes.

    Raises:
        InvalidSpec: the request can't be expressed, not for the cluster's Trainer, or does not fit its runtime; nothing
            was created.
        AdmissionRefused: the cluster refuses the TrainJob.
        NotFound: Kubeflow Trainer is not installed, or a claim that its runtime needs is missing.
        OwnershipConflict: a TrainJob of the wanted name belongs to somebody else.
        WaitTimeout: an earlier job was not gone in time.
        ClusterError: the cluster can't be asked.
    """
    drafted = prepare(
        request, key, namespace, otherwise=cluster.namespace, prefix=prefix, variables=variables, renewal=renewal
    )
    job, namespace, metadata = drafted.job, drafted.namespace, drafted.metadata
    waiting, own = _Waiting(patience), f"{labels.RUN_KEY}={key.digest}"
    send = _sender(cluster, before_create, owner)
    error: ClusterError | None = None
    while True:
        jobs = _with_known(cluster, cluster.list_trainjobs(namespace, own), known)
        plans = plan(jobs, drafted.spec_hash, _as_the_api_writes(since), renewal)
        if plans.adopt is not None:
            _delete(cluster, plans.cancel)
            if taken := adopt(cluster, plans.adopt, metadata(plans.attempt), labels.ending_annotations(job)):
                return reference_to(taken, adopted=True)
            waiting.pause([plans.adopt])
            continue
        manifest = manifest_of(cluster, job, metadata(plans.attempt), certain=bool(plans.cancel))
        _delete(cluster, plans.cancel)
        ends = plans.cancel or plans.going or _still_ends(cluster, manifest["metadata"])
        if not ends:
            waiting.check(error)
            try:
                return reference_to(_create(cluster, job, manifest, send), adopted=False)
            except Conflict as conflict:  # somebody was faster: ours, as the next list will show, or not
                error = conflict
                _check_owner(cluster.get_trainjob(manifest["metadata"]["name"], namespace), key)
            except ClusterError as failure:  # the answer may be lost and the job exist: the next list tells
                error = failure
                if not failure.retryable:
                    raise
        waiting.pause([*plans.going, *plans.cancel] or [manifest], None if ends else error)


class _Waiting:
    """The pauses of one submission, for as long as its caller has patience."""

    def __init__(self, patience: float) -> None:
        self._backoff, self._patience, self._deadline = Backoff(longest=5.0), patience, time.monotonic() + patience

    def pause(self, ending: Sequence[Mapping[str, Any]], error: ClusterError | None = None) -> None:
        """Until it is worth looking again.

        After a creation that failed this does not end the waiting: the TrainJob may exist, and the next list shows it.

        Raises:
            WaitTimeout: the patience is over.
        """
        if error is None and time.monotonic() > self._deadline:
            raise WaitTimeout(
                f"the earlier TrainJob {_names(ending)} of this step, or what belongs to it, is still being deleted "
                f"after {self._patience:.0f} s",
                hint="look at its pods; a node that does not answer keeps a pod terminating",
            )
        time.sleep(self._backoff.next(error))

    def check(self, error: ClusterError | None) -> None:
        """Raise the error of the creation before this one if the patience is over.

        Raises:
            ClusterError: that error.
        """
        if error is not None and time.monotonic() > self._deadline:
            raise error


def _with_known(cluster: Cluster, listed: list[dict[str, Any]], known: JobReference | None) -> list[dict[str, Any]]:
    if known is None or any(job["metadata"]["uid"] == known.uid for job in listed):
        return listed
    found = cluster.get_trainjob(known.name, known.namespace)
    return listed if found is None or found["metadata"]["uid"] != known.uid else [*listed, found]


def _still_ends(cluster: Cluster, metadata: Mapping[str, Any]) -> bool:
    """Whether an earlier TrainJob of this name is gone, and what it made is not.

    A new one would take over the end of a JobSet that is still there, as the Trainer finds it by its name only (2.1 to
    2.3), and would write to the same workspace as pods that still end.
    """
    name, namespace = metadata["name"], metadata["namespace"]
    return cluster.has_remains(name, namespace) and cluster.get_trainjob(name, namespace) is None


def _delete(cluster: Cluster, jobs: Sequence[Mapping[str, Any]]) -> None:
    for meta in (job["metadata"] for job in jobs):
        cluster.delete_trainjob(meta["name"], meta["namespace"], meta["uid"])


_Send = Callable[[dict[str, Any]], dict[str, Any]]


def _sender(
    cluster: Cluster, before_create: Callable[[str, str], None] | None, owner: Mapping[str, Any] | None
) -> _Send:
    """What sends a request to create, with what the caller wants before it and in it."""

    def send(manifest: dict[str, Any]) -> dict[str, Any]:
        meta = manifest["metadata"]
        if owner:
            manifest = {**manifest, "metadata": {**meta, "ownerReferences": [dict(owner)]}}
        if before_create:
            before_create(meta["name"], meta["namespace"])
        return cluster.create_trainjob(manifest)

    return send


def _create(
    cluster: Cluster, job: TrainJob | TrainJobManifest, manifest: dict[str, Any], send: _Send
) -> dict[str, Any]:
    """Create it; once more where the dialect was guessed wrong, or has been another since this process looked."""
    try:
        return send(manifest)
    except AdmissionRefused as error:
        if _UNKNOWN_FIELD not in error.message:
            with contextlib.suppress(ClusterError):
                check_runtime(cluster, job, manifest, fresh=True)
            raise
        cluster.trainjob_spec_fields(fresh=True)
        if (current := manifest_of(cluster, job, manifest["metadata"], certain=True)) == manifest:
            raise
    return send(current)


def _check_owner(found: Mapping[str, Any] | None, key: RunKey) -> None:
    if found is None or (found["metadata"].get("annotations") or {}).get(labels.RUN_KEY) == key.canonical:
        return
    raise OwnershipConflict(
        f"the TrainJob {found['metadata']['namespace']}/{found['metadata']['name']} exists and is not this step's",
        hint="delete or rename it, or give the step another name",
    )


def reference_to(job: Mapping[str, Any], *, adopted: bool) -> JobReference:
    """The reference to a TrainJob; one that is not ours counts as a first attempt."""
    meta = job["metadata"]
    attempt, adopted_at = max(attempt_of(job), 1), labels.adopted_at(job) if adopted else ""
    return JobReference(meta["name"], meta["namespace"], meta["uid"], attempt, adopted, adopted_at)


def _as_the_api_writes(moment: datetime | None) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def _names(jobs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(job["metadata"]["name"]) for job in jobs)

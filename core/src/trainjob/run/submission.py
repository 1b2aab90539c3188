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
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from trainjob.cluster import Backoff, Cluster
from trainjob.errors import (
    AdmissionRefused,
    ClusterError,
    Conflict,
    InvalidSpec,
    NotFound,
    OwnershipConflict,
    PermissionDenied,
    WaitTimeout,
)
from trainjob.manifest import Dialect, build, dialect_of, job_name, labels, needed_claim, spec_hash, train_job
from trainjob.run.identity import JobReference, RunKey
from trainjob.spec import Step, TrainJob
from trainjob.status import Phase, judge

# What strict field validation says (k8s.io/apimachinery, runtime.NewStrictDecodingError).
_UNKNOWN_FIELD = "unknown field"


class Adopt(str, Enum):
    """Which earlier TrainJob of the same run key, asked for with the same spec, is taken over."""

    RUNNING = "running"
    """One that has not finished: after a person cleared the step, to have it done again."""
    SUCCEEDED = "succeeded"
    """One that has not finished, or has succeeded: for any other try, as a crash may have been before it."""


@dataclass(frozen=True)
class Plan:
    """What to do next for a run key, given its TrainJobs.

    Attributes:
        adopt: take this one over.
        cancel: these are in the way: what they do is no longer wanted, or is done by another.
        going: these are being deleted: wait until they are gone.
        attempt: the number of the next attempt.
    """

    adopt: Mapping[str, Any] | None
    cancel: Sequence[Mapping[str, Any]]
    going: Sequence[Mapping[str, Any]]
    attempt: int


def plan(jobs: Sequence[Mapping[str, Any]], wanted: str, adopt: Adopt, since: str = "") -> Plan:
    """Decide from the TrainJobs of one run key. Pure; the order of `jobs` does not matter.

    Args:
        jobs: every TrainJob that carries the run key.
        wanted: the spec hash of what is asked for now.
        adopt: what may be taken over.
        since: RFC 3339 time in UTC; a succeeded one that is older is not taken over.
    """
    ordered = sorted(jobs, key=_attempt)
    going = [job for job in ordered if job["metadata"].get("deletionTimestamp")]
    active = [job for job in ordered if job not in going and not judge(job).phase.finished]
    same = [job for job in active if _hash(job) == wanted]
    if same:
        chosen = same[0]
        return Plan(chosen, [job for job in active if job is not chosen], going, _attempt(chosen))
    recent = [job for job in ordered if job["metadata"].get("creationTimestamp", "") >= since or not since]
    succeeded = [job for job in recent if judge(job).phase is Phase.COMPLETE and _hash(job) == wanted]
    if adopt is Adopt.SUCCEEDED and succeeded:
        return Plan(succeeded[-1], active, going, _attempt(succeeded[-1]))
    return Plan(None, active, going, max(map(_attempt, ordered), default=0) + 1)


def submit(
    cluster: Cluster,
    request: Step | TrainJob,
    key: RunKey,
    *,
    namespace: str = "",
    prefix: str = "",
    adopt: Adopt = Adopt.SUCCEEDED,
    since: datetime | None = None,
    patience: float = 120.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobReference:
    """Have one TrainJob work for this run key: an earlier one that still counts, or a new attempt.

    Args:
        cluster: where.
        request: a step such as `FineTune`, or any `TrainJob`.
        key: who asks; the same over retries.
        namespace: where; empty means the connection's.
        prefix: begins the TrainJob's name where the request does not say; empty means the key's task.
        adopt: what may be taken over.
        since: when the run of the workflow began, with a time zone: a TrainJob that succeeded for an earlier run of the
            same name is not taken over.
        patience: seconds to keep trying while the cluster can't answer or an earlier job is still being deleted.
        clock: seconds, for tests.
        sleep: for tests.

    Raises:
        InvalidSpec: the request can't be expressed, or not for the cluster's Trainer; nothing was created.
        AdmissionRefused: the cluster refuses the TrainJob.
        NotFound: Kubeflow Trainer is not installed, or a claim that its runtime needs is missing.
        OwnershipConflict: a TrainJob of the wanted name belongs to somebody else.
        WaitTimeout: an earlier job was not gone in time.
        ClusterError: the cluster can't be asked.
    """
    job, namespace = train_job(request), namespace or cluster.namespace
    wanted, own = spec_hash(request), f"{labels.RUN_KEY}={key.digest}"
    oldest = since.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if since else ""
    backoff, deadline = Backoff(longest=5.0), clock() + patience

    def metadata(attempt: int) -> dict[str, Any]:
        return {
            "name": job_name(job.name or prefix or key.task, key.digest, attempt),
            "namespace": namespace,
            "labels": labels.run_labels(key.to_dict(), key.digest, attempt),
            "annotations": {labels.RUN_KEY: key.canonical, labels.SPEC_HASH: wanted},
        }

    while True:
        plans = plan(cluster.list_trainjobs(namespace, own), wanted, adopt, oldest)
        if plans.adopt is not None:
            _delete(cluster, plans.cancel)
            return _reference(plans.adopt, adopted=True)
        manifest = _manifest(cluster, job, metadata(plans.attempt))
        _delete(cluster, plans.cancel)
        error: ClusterError | None = None
        ends = plans.cancel or plans.going or _still_ends(cluster, manifest["metadata"])
        if not ends:
            try:
                return _reference(_create(cluster, job, manifest), adopted=False)
            except Conflict as conflict:  # somebody was faster: ours, as the next list will show, or not
                error = conflict
                _check_owner(cluster.get_trainjob(manifest["metadata"]["name"], namespace), key)
            except ClusterError as failure:  # the answer may be lost and the job exist: the next list tells
                error = failure
                if not failure.retryable:
                    raise
        if clock() > deadline:
            raise error or WaitTimeout(
                f"the earlier TrainJob {_names([*plans.going, *plans.cancel] or [manifest])} of this step, or what "
                f"belongs to it, is still being deleted after {patience:.0f} s",
                hint="look at its pods; a node that does not answer keeps a pod terminating",
            )
        sleep(backoff.next(error))


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


def _manifest(cluster: Cluster, job: TrainJob, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The TrainJob in the cluster's dialect; what it can't express is said before anything is deleted or created."""
    fields = cluster.trainjob_spec_fields()
    try:
        manifest = build(job, **metadata, dialect=dialect_of(fields))
    except InvalidSpec:  # unless somebody has upgraded the Trainer since this process read them
        if (current := cluster.trainjob_spec_fields(fresh=True)) == fields:
            raise
        fields, manifest = current, build(job, **metadata, dialect=dialect_of(current))
    if claim := needed_claim(job, dialect_of(fields)):
        _check_claim(cluster, claim, metadata["namespace"], dialect_of(fields))
    return manifest


def _create(cluster: Cluster, job: TrainJob, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Create it; once more in another dialect where somebody has upgraded the Trainer since this process looked."""
    try:
        return cluster.create_trainjob(manifest)
    except AdmissionRefused as error:
        if _UNKNOWN_FIELD not in error.message:
            raise
        cluster.trainjob_spec_fields(fresh=True)
        if (current := _manifest(cluster, job, manifest["metadata"])) == manifest:
            raise
    return cluster.create_trainjob(current)


def _check_claim(cluster: Cluster, claim: str, namespace: str, dialect: Dialect) -> None:
    """Without it the pods would wait for ever; who may not look at claims is told by the waiting."""
    with contextlib.suppress(PermissionDenied):
        if cluster.get_claim(claim, namespace) is None:
            raise NotFound(
                f"there is no PersistentVolumeClaim {claim} in namespace {namespace}: with Trainer {dialect.value} the "
                f"runtime {claim} keeps data set, model and output on it",
                hint=f"create the claim {claim}, train over a workspace of your own, or upgrade to Trainer "
                f"{Dialect.V2_2.value} or later, which makes one for each TrainJob",
            )


def _check_owner(found: Mapping[str, Any] | None, key: RunKey) -> None:
    if found is None or (found["metadata"].get("annotations") or {}).get(labels.RUN_KEY) == key.canonical:
        return
    raise OwnershipConflict(
        f"the TrainJob {found['metadata']['namespace']}/{found['metadata']['name']} exists and is not this step's",
        hint="delete or rename it, or give the step another name",
    )


def _reference(job: Mapping[str, Any], *, adopted: bool) -> JobReference:
    meta = job["metadata"]
    return JobReference(meta["name"], meta["namespace"], meta["uid"], max(_attempt(job), 1), adopted)


def _attempt(job: Mapping[str, Any]) -> int:
    text = (job["metadata"].get("labels") or {}).get(labels.ATTEMPT, "")
    return int(text) if text.isdigit() else 0


def _hash(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("annotations") or {}).get(labels.SPEC_HASH, ""))


def _names(jobs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(job["metadata"]["name"]) for job in jobs)

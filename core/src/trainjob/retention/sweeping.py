"""Deletion of TrainJobs that engines and crashes leave behind.

Several sweeps may run at the same time and be killed at any moment. Each deletes one TrainJob after the other. A
TrainJob that another sweep deleted first is not an error.

No sweep deletes a TrainJob that a caller waits for. The engine reports a caller as running before the caller adopts a
TrainJob, and the adoption writes to the TrainJob ([trainjob.lifecycle.submit][]). A sweep reads the TrainJob, queries
the engine, and deletes the TrainJob only if it has not changed since it was read. The engine reports a caller that
started before the query as running. A caller that starts later has changed the TrainJob, or finds it deleted and
creates another attempt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError, ClusterUnreachable, Conflict, NotFound, PermissionDenied, Unauthorized
from trainjob.lifecycle.identity import JobReference, RunKey, find_digest, run_key_of
from trainjob.lifecycle.submission import reference_to
from trainjob.manifest import labels
from trainjob.retention.policy import Lifetimes, SweepAction, SweepDecision, decide_action, may_hold_a_model
from trainjob.status import derive_verdict

_ACTIVE_FOR = Lifetimes().active_for
# Number of tries to delete a TrainJob that changes between read and delete, for example while it starts.
_MAX_TRIES = 10
_NO_ATTEMPT = "it was not created by a step: its name does not follow from its run key, so it may be a copy"
_MAX_FAILURES = 10  # TrainJobs; after that many, a sweep ends, because each request is retried for a minute


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep for one TrainJob.

    Attributes:
        reference: the TrainJob.
        action: `deleted`, `suspended` or `kept`; in a dry run, the action that the sweep would have taken.
        reason: the reason, as text.
    """

    reference: JobReference
    action: str
    reason: str

    def __str__(self) -> str:
        return f"TrainJob {self.reference}: {self.action}: {self.reason}"


def sweep(
    cluster: Cluster,
    *,
    namespace: str = "",
    finished_for: timedelta | None = None,
    active_for: timedelta = _ACTIVE_FOR,
    has_ended: Callable[[RunKey], bool | None] = lambda _: None,
    unexported: bool = False,
    dry_run: bool = False,
    on_result: Callable[[SweepResult], None] = lambda _: None,
) -> list[SweepResult]:
    """Delete the expired TrainJobs of a namespace, and unfinished ones without a caller.

    Only TrainJobs that were created for a run key are deleted ([trainjob.lifecycle.find_digest][]), not copies. A
    finished TrainJob is deleted after its own `ttl_after_success` or `ttl_after_failure`, unless its caller is known to
    be running. An unfinished TrainJob is deleted if its caller is known to have ended; its `on_kill` may retain or
    suspend it instead.

    The code of finished TrainJobs is deleted from their ConfigMaps.

    A complete TrainJob whose model is on its own claim is retained until the model is exported, because the claim is
    deleted with the TrainJob.

    Args:
        cluster: the cluster of the TrainJobs.
        namespace: their namespace; empty means the connection's.
        finished_for: time for which finished TrainJobs without a lifetime of their own are retained; None means no
            limit.
        active_for: minimum age of an unfinished TrainJob, since its creation or adoption, before it is deleted.
        has_ended: queries the engine, and returns whether the caller with this run key has ended, for good or until a
            user starts it again; None if that is not known. Called on this thread.
        unexported: whether to delete also TrainJobs whose model has not been exported.
        dry_run: whether to change nothing.
        on_result: called with each result immediately.

    Returns:
        The deleted and suspended TrainJobs, and those that were kept although they have expired, or because their
        lifetime is invalid.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: a request failed or was denied. If it was about one TrainJob, `on_result` has received its failure
            as the reason why it was kept. The sweep ends after 10 such failures.
    """
    lifetimes, results = Lifetimes(finished_for, active_for), []
    sweeper, failures = _Sweeper(cluster, lifetimes, has_ended, unexported, dry_run), list[ClusterError]()
    jobs = cluster.list_trainjobs(namespace or cluster.namespace)
    for job in jobs:
        try:
            result = sweeper.process(job)
        except (ClusterUnreachable, Unauthorized):  # each further request would fail after a minute, too
            raise
        except ClusterError as error:
            failures.append(error)
            result = SweepResult(reference_to(job, adopted=True), "kept", f"a request failed: {error.message}")
        if result:
            on_result(result)
            results.append(result)
        if len(failures) == _MAX_FAILURES:
            break
    if failures:
        raise failures[0]
    if not dry_run:
        _delete_unused_code(cluster, namespace or cluster.namespace, jobs)
    return results


def _delete_unused_code(cluster: Cluster, namespace: str, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Delete the ConfigMaps with the code of finished TrainJobs.

    Their pods do not start again. Without the permission, Kubernetes deletes each ConfigMap with its TrainJob.
    """
    finished = {job["metadata"]["uid"] for job in jobs if derive_verdict(job).phase.finished}
    if not any(labels.get_code(job["metadata"]) for job in jobs if job["metadata"]["uid"] in finished):
        return
    selector = ",".join(f"{name}={value}" for name, value in labels.MANAGED_BY.items())
    with contextlib.suppress(PermissionDenied):
        for config_map in cluster.list_config_maps(namespace, selector):
            meta = config_map["metadata"]
            owners = {owner["uid"] for owner in meta.get("ownerReferences") or ()}
            if owners and owners <= finished:
                cluster.delete_config_map(meta["name"], meta["namespace"], meta["uid"])


@dataclass(frozen=True)
class _Sweeper:
    """Arguments of one sweep."""

    cluster: Cluster
    lifetimes: Lifetimes
    has_ended: Callable[[RunKey], bool | None]
    unexported: bool
    dry_run: bool

    def process(self, listed: Mapping[str, Any]) -> SweepResult | None:
        """Apply the sweep to one TrainJob, and return its result; None if there is none to report."""
        job: Mapping[str, Any] | None = listed
        for _ in range(_MAX_TRIES):
            if job is None or job["metadata"]["uid"] != listed["metadata"]["uid"]:
                return None  # it was deleted, or replaced by another TrainJob of its name
            decided = decide_action(job, self.lifetimes, datetime.now(timezone.utc))
            if decided.action is not SweepAction.RETAIN and not find_digest(job):
                return SweepResult(reference_to(job, adopted=True), "kept", _NO_ATTEMPT)
            if decided.action is SweepAction.RETAIN or self._is_in_use(job, decided):
                if not _needs_report(decided):
                    return None
                return SweepResult(reference_to(job, adopted=True), "kept", decided.reason)
            if reason := self._reason_to_keep(job):
                return SweepResult(reference_to(job, adopted=True), "kept", reason)
            action = _action_name(job, decided)
            if self.dry_run or self._apply(job, action):
                return SweepResult(reference_to(job, adopted=True), action, decided.reason)
            meta = job["metadata"]
            job = self.cluster.get_trainjob(meta["name"], meta["namespace"])
        return None  # it changed during each try, so another process uses it

    def _is_in_use(self, job: Mapping[str, Any], decided: SweepDecision) -> bool:
        key = run_key_of(job)
        ended = None if key is None else self.has_ended(key)
        return ended is not True if decided.action is SweepAction.END_IF_CALLER_ENDED else ended is False

    def _reason_to_keep(self, job: Mapping[str, Any]) -> str:
        if self.unexported or not may_hold_a_model(job):
            return ""
        meta = job["metadata"]
        name = f"{labels.OWN_CLAIM_PREFIX}{meta['name']}"
        try:
            claim = self.cluster.get_claim(name, meta["namespace"])
        except PermissionDenied as error:
            return f"the sweep can't check whether its model would be deleted with it: {error.message}"
        # A claim without an owner is not deleted with it: a claim of the user, or one that its runtime retains.
        if claim is None or not claim["metadata"].get("ownerReferences"):
            return ""
        return f"the PersistentVolumeClaim {name} would be deleted with it, and the model on it has not been exported"

    def _apply(self, job: Mapping[str, Any], action: str) -> bool:
        """Delete or suspend a TrainJob, and return False if it has changed since it was read."""
        meta = job["metadata"]
        name, namespace, uid, version = (meta[part] for part in ("name", "namespace", "uid", "resourceVersion"))
        if action == "deleted":
            return self.cluster.delete_trainjob(name, namespace, uid, version)
        marks = {labels.SUSPENDED: "until-adopted"}
        try:
            self.cluster.patch_trainjob(name, namespace, uid, resource_version=version, suspend=True, annotations=marks)
        except (NotFound, Conflict):
            return False
        return True


def _action_name(job: Mapping[str, Any], decided: SweepDecision) -> str:
    is_suspension = (
        decided.action is SweepAction.END_IF_CALLER_ENDED and labels.get_annotation(job, labels.ON_KILL) == "suspend"
    )
    return "suspended" if is_suspension else "deleted"


def _needs_report(decided: SweepDecision) -> bool:
    """Return whether a user should know why a TrainJob is retained."""
    return decided.action is SweepAction.RETAIN and bool(decided.reason)

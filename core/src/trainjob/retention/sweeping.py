"""Deletion of TrainJobs that nobody needs any more, which engines and crashes leave behind.

Any number of sweeps may run at once and be killed at any moment: each deletes one TrainJob after the other, and a
TrainJob that another sweep deleted first is no error.

No sweep deletes a TrainJob that a caller waits for. For its engine a caller is running before it adopts a TrainJob, and
the adoption writes to the TrainJob ([trainjob.lifecycle.submit][]). A sweep reads the TrainJob, asks the engine, and
deletes the TrainJob only if it has not changed since. A caller that came before the question is reported as running.
A caller that comes later has changed the TrainJob, or finds it deleted and creates another attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound, PermissionDenied
from trainjob.lifecycle.identity import JobReference, RunKey, run_key_of
from trainjob.lifecycle.submission import reference_to
from trainjob.manifest import labels
from trainjob.retention.policy import Decided, Lifetimes, SweepAction, decide, may_hold_a_model

_AT_WORK_FOR = Lifetimes().at_work_for
_LOOKS = 10  # at one that changes each time that it is about to go, as one that starts does


@dataclass(frozen=True)
class Swept:
    """What a sweep did with one TrainJob of which there is something to tell.

    Attributes:
        reference: which.
        done: `deleted`, `suspended` or `kept`; in a dry run, what would have been done.
        reason: why.
    """

    reference: JobReference
    done: str
    reason: str

    def __str__(self) -> str:
        return f"TrainJob {self.reference}: {self.done}: {self.reason}"


def sweep(
    cluster: Cluster,
    *,
    namespace: str = "",
    finished_for: timedelta | None = None,
    at_work_for: timedelta = _AT_WORK_FOR,
    is_over: Callable[[RunKey], bool | None] = lambda _: None,
    unexported: bool = False,
    dry_run: bool = False,
    tell: Callable[[Swept], None] = lambda _: None,
) -> list[Swept]:
    """Delete the TrainJobs of a namespace whose time is over, and those at work that nobody waits for.

    Only ours are looked at (label `app.kubernetes.io/managed-by=trainjob`). One that has ended goes when its own
    `ttl_after_success` or `ttl_after_failure` is over, unless who asked for it has not ended. One at work goes when who
    asked for it is known to have ended, and `on_kill` does not say otherwise.

    A complete one whose model is on a claim of its own, which goes with it, stays until that is exported.

    Args:
        cluster: where.
        namespace: where; empty means the connection's.
        finished_for: how long those stay that have ended and say nothing of it themselves; None means for ever.
        at_work_for: how old one at work is at least, since its creation or adoption, before it goes.
        is_over: asks the engine whether who asked for a TrainJob has ended, for good or until a person starts it again;
            None when that can't be told. Called on this thread.
        unexported: delete those, too, whose model may be nowhere else.
        dry_run: delete nothing.
        tell: takes each result at once.

    Returns:
        What was done, and what was kept though its time is over.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the cluster can't be asked; what was done until then is told.
    """
    lifetimes, results = Lifetimes(finished_for, at_work_for), []
    sweeper = _Sweeper(cluster, lifetimes, is_over, unexported, dry_run)
    for job in cluster.list_trainjobs(namespace or cluster.namespace):
        if done := sweeper.attend_to(job):
            tell(done)
            results.append(done)
    return results


@dataclass(frozen=True)
class _Sweeper:
    """One sweep's arguments."""

    cluster: Cluster
    lifetimes: Lifetimes
    is_over: Callable[[RunKey], bool | None]
    unexported: bool
    dry_run: bool

    def attend_to(self, listed: Mapping[str, Any]) -> Swept | None:
        """Do what is to be done with one of them; None when that is nothing worth telling."""
        job: Mapping[str, Any] | None = listed
        for _ in range(_LOOKS):
            if job is None or job["metadata"]["uid"] != listed["metadata"]["uid"]:
                return None  # somebody was faster
            decided = decide(job, self.lifetimes, datetime.now(timezone.utc))
            if decided.fate is SweepAction.STAYS or self._is_wanted(job, decided):
                return Swept(reference_to(job, adopted=True), "kept", decided.reason) if _is_odd(decided) else None
            if reason := self._reason_to_keep(job):
                return Swept(reference_to(job, adopted=True), "kept", reason)
            done = _deed(job, decided)
            if self.dry_run or self._carry_out(job, done):
                return Swept(reference_to(job, adopted=True), done, decided.reason)
            meta = job["metadata"]
            job = self.cluster.get_trainjob(meta["name"], meta["namespace"])
        return None  # somebody is busy with it

    def _is_wanted(self, job: Mapping[str, Any], decided: Decided) -> bool:
        key = run_key_of(job)
        over = None if key is None else self.is_over(key)
        return over is not True if decided.fate is SweepAction.GOES_IF_UNWANTED else over is False

    def _reason_to_keep(self, job: Mapping[str, Any]) -> str:
        if self.unexported or not may_hold_a_model(job):
            return ""
        meta = job["metadata"]
        name = f"{labels.OWN_CLAIM}{meta['name']}"
        try:
            claim = self.cluster.get_claim(name, meta["namespace"])
        except PermissionDenied as error:
            return f"it can't be told whether its model would go with it: {error.message}"
        # One that has no owner, such as a claim of the user's, or one that its runtime retains, does not go.
        if claim is None or not claim["metadata"].get("ownerReferences"):
            return ""
        return f"the claim {name} goes with it, and nobody has exported what is on it"

    def _carry_out(self, job: Mapping[str, Any], done: str) -> bool:
        """False when it has changed since it was read, or is gone."""
        meta = job["metadata"]
        name, namespace, uid, version = (meta[part] for part in ("name", "namespace", "uid", "resourceVersion"))
        if done == "deleted":
            return self.cluster.delete_trainjob(name, namespace, uid, version)
        marks = {labels.SUSPENDED: "until-adopted"}
        try:
            self.cluster.patch_trainjob(name, namespace, uid, version=version, suspend=True, annotations=marks)
        except (NotFound, Conflict):
            return False
        return True


def _deed(job: Mapping[str, Any], decided: Decided) -> str:
    suspends = decided.fate is SweepAction.GOES_IF_UNWANTED and labels.annotation(job, labels.ON_KILL) == "suspend"
    return "suspended" if suspends else "deleted"


def _is_odd(decided: Decided) -> bool:
    """Whether a person should know why it stays."""
    return decided.fate is SweepAction.STAYS and bool(decided.reason)

"""The JobSet controller; the functions that decide are pure.

Source: JobSet 0.12 `pkg/controllers/{jobset_controller,depends_on,success_policy}.go`. Not implemented: the startup
order InOrder, exclusive placement, coordinators, in-place restart and TTL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainjob_local.controllers.conditions import build_condition, find_condition, is_condition_true, with_condition
from trainjob_local.controllers.failure_policy import apply_failure_policy
from trainjob_local.controllers.jobset_children import LABEL_PREFIX, build_claims, build_job, build_service, job_name
from trainjob_local.controllers.writes import Create, Decision, Delete, EventWrite, Patch, Write, patch_status
from trainjob_local.objects import Json

__all__ = ["ChildJobs", "count_replicated_jobs", "decide"]

_COMPLETED = "jobset completed successfully"
_RESTARTING = "RestartingJobSet"


@dataclass(frozen=True)
class ChildJobs:
    """The Jobs of a JobSet by their state.

    Attributes:
        active: Jobs that have not ended.
        successful: Jobs with the condition Complete.
        failed: Jobs with the condition Failed.
        previous: Jobs of an earlier restart attempt, in any state.
    """

    active: list[Json] = field(default_factory=list)
    successful: list[Json] = field(default_factory=list)
    failed: list[Json] = field(default_factory=list)
    previous: list[Json] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """The names of all these Jobs, which no new Job can use."""
        every = [*self.active, *self.successful, *self.failed, *self.previous]
        return {job["metadata"]["name"] for job in every}


def group_child_jobs(jobset: Json, jobs: Sequence[Json]) -> ChildJobs:
    """Sort the Jobs of a JobSet by their state."""
    children, restarts = ChildJobs(), int((jobset.get("status") or {}).get("restarts", 0))
    for job in jobs:
        conditions = (job.get("status") or {}).get("conditions") or []
        if int(job["metadata"]["labels"].get(f"{LABEL_PREFIX}restart-attempt", 0)) < restarts:
            children.previous.append(job)
        elif is_condition_true(conditions, "Complete"):
            children.successful.append(job)
        elif is_condition_true(conditions, "Failed"):
            children.failed.append(job)
        else:
            children.active.append(job)
    return children


def decide(jobset: Json, jobs: Sequence[Json], now: datetime) -> Decision:
    """Decide which writes a JobSet needs.

    Args:
        jobset: the JobSet.
        jobs: the Jobs that it owns.
        now: the current time.
    """
    if "deletionTimestamp" in jobset["metadata"]:
        return Decision()
    children = group_child_jobs(jobset, jobs)
    counted = count_replicated_jobs(jobset, children)
    update = _StatusUpdate(jobset, counted, now)
    conditions = (jobset.get("status") or {}).get("conditions") or []
    if is_condition_true(conditions, "Completed") or is_condition_true(conditions, "Failed"):
        return Decision([*_delete_jobs(children.active), *update.writes()])
    writes: list[Write] = _delete_jobs(children.previous)
    if _are_jobs_ready(jobset, counted):
        update.set_condition(build_condition(_RESTARTING, False, "JobsReady", "all jobs are ready"))
    if children.failed:
        _apply_failure_policy(update, children.failed)
    elif children.successful and _meets_success_policy(jobset, children):
        update.set_condition(build_condition("Completed", True, "AllJobsCompleted", _COMPLETED), terminal="Completed")
        update.set_condition(build_condition(_RESTARTING, False, "JobSetCompleted", _COMPLETED))
    else:
        writes += [*_create_service_and_claims(jobset), *_create_jobs(jobset, children, counted)]
        writes += _suspend(update, children) if jobset["spec"].get("suspend") else _resume(update, children, counted)
    return Decision([*writes, *update.writes()])


def count_replicated_jobs(jobset: Json, children: ChildJobs) -> list[Json]:
    """Count the Jobs of each replicated job, in descending order of its name.

    The JobSet controller writes the same order.
    """
    counts = {
        replicated["name"]: dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for replicated in jobset["spec"]["replicatedJobs"]
    }
    for job in children.active:
        count, status = counts[_replicated_job_name(job)], job.get("status") or {}
        count["ready"] += status.get("succeeded", 0) + status.get("ready", 0) >= _expected_pods(job)
        count["active"] += status.get("active", 0) > 0
        count["suspended"] += bool(job["spec"].get("suspend"))
    for key, jobs in (("succeeded", children.successful), ("failed", children.failed)):
        for job in jobs:
            counts[_replicated_job_name(job)][key] += 1
    return [{"name": name, **counts[name]} for name in sorted(counts, reverse=True)]


class _StatusUpdate:
    """The new status of a JobSet and the events that belong to it."""

    def __init__(self, jobset: Json, counts: list[Json], now: datetime) -> None:
        self.jobset, self._now = jobset, now
        status = jobset.get("status") or {}
        self.status: Json = {"restarts": 0, **status, "replicatedJobsStatus": counts}
        self._events: list[Write] = []

    def set_condition(self, new: Json, *, terminal: str = "", kind: str = "Normal") -> None:
        """Set a condition, and emit an event if its status changes.

        A false condition is not added if the JobSet never had a condition of this type.

        Args:
            new: the condition.
            terminal: the new `terminalState`; empty to leave it unchanged.
            kind: type of the event, `Normal` or `Warning`.
        """
        known = find_condition(self.status.get("conditions") or [], new["type"])
        if (known is None and new["status"] == "False") or (known and known["status"] == new["status"]):
            return
        self.status["conditions"] = with_condition(self.status.get("conditions") or [], new, self._now)
        if terminal:
            self.status["terminalState"] = terminal
        self.add_event(kind, new["reason"], new["message"])

    def add_event(self, kind: str, reason: str, message: str) -> None:
        """Add an event."""
        self._events.append(EventWrite("jobsets", self.jobset, kind, reason, message, "jobset", "Reconciling"))

    def writes(self) -> list[Write]:
        """Return the writes of status and events; empty if the status did not change."""
        if self.status == (self.jobset.get("status") or {}):
            return []
        return [patch_status("jobsets", self.jobset, self.status), *self._events]


def _replicated_job_name(job: Json) -> str:
    return str(job["metadata"]["labels"][f"{LABEL_PREFIX}replicatedjob-name"])


def _expected_pods(job: Json) -> int:
    parallelism = int(job["spec"].get("parallelism", 1))
    return min(parallelism, int(job["spec"].get("completions", parallelism)))


def _delete_jobs(jobs: Sequence[Json]) -> list[Write]:
    return [Delete("jobs", job, "Foreground") for job in jobs if "deletionTimestamp" not in job["metadata"]]


def _apply_failure_policy(update: _StatusUpdate, failed: Sequence[Json]) -> None:
    action = apply_failure_policy(update.jobset, failed, f"{LABEL_PREFIX}replicatedjob-name")
    if not action.restart_reason:
        failure = build_condition("Failed", True, action.reason, action.message)
        update.set_condition(failure, terminal="Failed", kind="Warning")
        return update.set_condition(build_condition(_RESTARTING, False, "JobSetFailed", "jobset failed"))
    update.status["restarts"] += 1
    if action.counts_towards_max:
        update.status["restartsCountTowardsMax"] = int(update.status.get("restartsCountTowardsMax", 0)) + 1
    update.set_condition(build_condition(_RESTARTING, True, action.restart_reason, action.message), kind="Warning")
    return update.add_event("Warning", action.reason, action.message)


def _are_jobs_ready(jobset: Json, counts: Sequence[Json]) -> bool:
    wanted = sum(int(one["replicas"]) for one in jobset["spec"]["replicatedJobs"])
    return not jobset["spec"].get("suspend") and wanted == sum(one["ready"] + one["succeeded"] for one in counts)


def _meets_success_policy(jobset: Json, children: ChildJobs) -> bool:
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or []
    done = [job for job in children.successful if not targets or _replicated_job_name(job) in targets]
    wanted = [one for one in jobset["spec"]["replicatedJobs"] if not targets or one["name"] in targets]
    needed = 1 if policy.get("operator") == "Any" else sum(int(one["replicas"]) for one in wanted)
    return len(done) >= needed


def _create_service_and_claims(jobset: Json) -> list[Write]:
    """Return the writes that create the Service and the claims, which may exist already."""
    failed = EventWrite("jobsets", jobset, "Warning", "PVCCreationFailed", "{error}", "jobset", "Reconciling")
    claims: list[Write] = [
        Create("persistentvolumeclaims", claim, failure_event=failed, may_exist=True) for claim in build_claims(jobset)
    ]
    service = build_service(jobset)
    return [Create("services", service, may_exist=True), *claims] if service else claims


def _create_jobs(jobset: Json, children: ChildJobs, counts: Sequence[Json]) -> list[Write]:
    text = 'job "{name}" creation failed with error: {error}'
    failed = EventWrite("jobsets", jobset, "Warning", "JobCreationFailed", text, "jobset", "Reconciling")
    statuses = {one["name"]: one for one in counts}
    wanted = [
        (replicated, index)
        for replicated in jobset["spec"]["replicatedJobs"]
        if _are_dependencies_met(jobset, replicated, statuses)
        for index in range(int(replicated["replicas"]))
        if job_name(jobset, replicated, index) not in children.names
    ]
    return [Create("jobs", build_job(jobset, *one), failure_event=failed) for one in wanted]


def _are_dependencies_met(jobset: Json, replicated: Json, statuses: Mapping[str, Json]) -> bool:
    replicas = {one["name"]: int(one["replicas"]) for one in jobset["spec"]["replicatedJobs"]}
    for needed in replicated.get("dependsOn") or []:
        name, status = needed["name"], statuses[needed["name"]]
        reached = status["succeeded"]
        if needed["status"] == "Ready":
            reached += status["failed"] + status["ready"]
        if reached != replicas[name]:
            return False
    return True


def _suspend(update: _StatusUpdate, children: ChildJobs) -> list[Write]:
    update.set_condition(build_condition("Suspended", True, "SuspendedJobs", "jobset is suspended"))
    update.set_condition(build_condition(_RESTARTING, False, "JobSetSuspended", "jobset is suspended"))
    running = [job for job in children.active if not job["spec"].get("suspend")]
    return [Patch("jobs", job, {"spec": {"suspend": True}}) for job in running]


def _resume(update: _StatusUpdate, children: ChildJobs, counts: Sequence[Json]) -> list[Write]:
    update.set_condition(build_condition("Suspended", False, "ResumeJobs", "jobset is resumed"))
    jobset, statuses = update.jobset, {one["name"]: one for one in counts}
    templates = {one["name"]: one for one in jobset["spec"]["replicatedJobs"]}
    ready = {name for name, one in templates.items() if _are_dependencies_met(jobset, one, statuses)}
    suspended = [job for job in children.active if job["spec"].get("suspend") and _replicated_job_name(job) in ready]
    return [Patch("jobs", job, _build_resume_patch(job, templates[_replicated_job_name(job)])) for job in suspended]


def _build_resume_patch(job: Json, replicated: Json) -> Json:
    """Return the patch that resumes a Job.

    It copies the labels, annotations, node selector, tolerations and scheduling gates that a queue controller may have
    added to the JobSet while it was suspended.
    """
    wanted = replicated["template"]["spec"]["template"]
    meta, spec = wanted.get("metadata") or {}, wanted["spec"]
    template: Json = {"metadata": {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}}
    present = job["spec"]["template"]["spec"]
    change: Json = {key: spec[key] for key in ("nodeSelector",) if spec.get(key)}
    for key in ("tolerations", "schedulingGates"):
        added = [one for one in spec.get(key) or [] if one not in (present.get(key) or [])]
        if added:
            change[key] = [*(present.get(key) or []), *added]
    return {"spec": {"suspend": False, "template": {**template, "spec": change}}}

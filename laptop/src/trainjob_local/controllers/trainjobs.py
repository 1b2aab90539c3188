"""The TrainJob controller: JobSet, status and deadline; functions that decide are pure.

Source: Trainer 2.3 `pkg/controller/trainjob_controller.go`, `pkg/runtime/framework/plugins/jobset/jobset.go` (Status),
`pkg/runtime/core/snapshot.go`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from trainjob_local.controllers.conditions import (
    build_condition,
    find_condition,
    is_condition_true,
    with_condition,
    without_condition,
)
from trainjob_local.controllers.jobset_rules import with_defaults
from trainjob_local.controllers.writes import Create, Decision, Delete, EventWrite, Patch, Write, patch_status
from trainjob_local.objects import Json, owner_reference, parse_timestamp

__all__ = [
    "SNAPSHOT_KEY",
    "build_snapshot",
    "build_status",
    "compute_deadline",
    "creation_failed_event",
    "decide",
    "is_finished",
    "snapshot_name",
]

SNAPSHOT_KEY = "runtime"
_DEADLINE = "DeadlineExceeded"
_MUTABLE_FIELDS = ("metadata", "nodeSelector", "tolerations", "schedulingGates")


def snapshot_name(job: str) -> str:
    """Return the name of the ConfigMap with the runtime at the start of the TrainJob."""
    return f"{job}-runtime-snapshot"


def build_snapshot(job: Json, runtime: Json) -> Json:
    """Build the ConfigMap that holds the runtime; its content is JSON, which is also YAML."""
    meta = job["metadata"]
    names = {"name": snapshot_name(meta["name"]), "namespace": meta["namespace"]}
    return {
        "metadata": {**names, "ownerReferences": [owner_reference(job, "trainjobs")]},
        "data": {SNAPSHOT_KEY: json.dumps(runtime)},
    }


def is_finished(job: Json) -> bool:
    """Return whether a TrainJob is Complete or exceeded its deadline.

    A TrainJob that Failed for any other reason is reconciled again.
    """
    conditions = (job.get("status") or {}).get("conditions") or []
    return is_condition_true(conditions, "Complete") or _find_deadline_condition(conditions) is not None


def decide(job: Json, desired: Json | None, jobset: Json | None, now: datetime) -> Decision:
    """Decide which writes a TrainJob needs.

    Args:
        job: the TrainJob.
        desired: the desired JobSet (before the webhook's defaults); None to neither create nor change the JobSet.
        jobset: the existing JobSet, or None.
        now: the current time.
    """
    status = build_status(job, jobset, now)
    deadline = compute_deadline(job, status)
    left = (deadline - now).total_seconds() if deadline is not None else None
    expired = left is not None and left <= 0
    if expired:
        failed = build_condition("Failed", True, _DEADLINE, "TrainJob exceeded its active deadline")
        status = {**status, "conditions": with_condition(status.get("conditions") or [], failed, now)}
    # The status first: a JobSet that the API server rejects must not hide that the TrainJob is suspended.
    writes: list[Write] = [patch_status("trainjobs", job, status)] if status != (job.get("status") or {}) else []
    if expired:
        return Decision([*writes, Delete("jobsets", jobset)] if jobset is not None else writes)
    if desired is not None:
        writes += _apply_jobset(job, desired, jobset)
    return Decision(writes, left)


def build_status(job: Json, jobset: Json | None, now: datetime) -> Json:
    """Return the new status, derived from the JobSet.

    Without a JobSet, the status reports only suspension. A condition Failed is kept if its reason is DeadlineExceeded;
    otherwise the JobSet determines it.
    """
    status = dict(job.get("status") or {})
    conditions: list[Json] = list(status.get("conditions") or [])
    by_deadline = _find_deadline_condition(conditions)
    if by_deadline is None:
        conditions = without_condition(conditions, "Failed")
    conditions = _with_suspended_condition(job, conditions, now)
    if jobset is not None:
        jobset_status = jobset.get("status") or {}
        conditions = _with_final_conditions(conditions, jobset_status.get("conditions") or [], now)
        counters = [_job_status(one) for one in jobset_status.get("replicatedJobsStatus") or []]
        if counters or "jobsStatus" in status:
            status["jobsStatus"] = counters
    if by_deadline is not None:
        conditions = with_condition(conditions, by_deadline, now)
    if conditions or "conditions" in status:
        status["conditions"] = conditions
    return status


def compute_deadline(job: Json, status: Json) -> datetime | None:
    """Return when the TrainJob's active deadline ends; None if no deadline applies.

    The deadline is counted from the creation or the last resume. It does not apply to a TrainJob that is suspended,
    Complete or Failed.
    """
    spec, conditions = job["spec"], status.get("conditions") or []
    limit = spec.get("activeDeadlineSeconds")
    over = is_condition_true(conditions, "Complete") or is_condition_true(conditions, "Failed")
    if not limit or over or spec.get("suspend"):
        return None
    resumed = find_condition(conditions, "Suspended")
    start = job["metadata"]["creationTimestamp"]
    if resumed is not None and resumed["status"] == "False":
        start = resumed["lastTransitionTime"]
    return parse_timestamp(start) + timedelta(seconds=int(limit))


def _find_deadline_condition(conditions: Sequence[Json]) -> Json | None:
    found = find_condition(conditions, "Failed")
    return found if found is not None and found["reason"] == _DEADLINE else None


def _with_suspended_condition(job: Json, conditions: Sequence[Json], now: datetime) -> list[Json]:
    if job["spec"].get("suspend"):
        return with_condition(conditions, build_condition("Suspended", True, "Suspended", "TrainJob is suspended"), now)
    if is_condition_true(conditions, "Suspended"):
        return with_condition(conditions, build_condition("Suspended", False, "Resumed", "TrainJob is resumed"), now)
    return list(conditions)


def _with_final_conditions(conditions: list[Json], jobset_conditions: Sequence[Json], now: datetime) -> list[Json]:
    """Copy the JobSet's final conditions with their times."""
    for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        found = find_condition(jobset_conditions, theirs)
        if found is not None and found["status"] == "True":
            conditions = with_condition(conditions, {**found, "type": ours}, now)
    return conditions


def _job_status(one: Json) -> Json:
    return {key: one[key] for key in ("name", "ready", "succeeded", "failed", "active", "suspended")}


def _apply_jobset(job: Json, desired: Json, jobset: Json | None) -> list[Write]:
    failure_event = creation_failed_event(job, "{error}")
    if jobset is None:
        return [Create("jobsets", desired, failure_event=failure_event)]
    spec, present = with_defaults(desired)["spec"], jobset["spec"]
    if not spec.get("suspend") and not present.get("suspend"):
        return []  # a running JobSet is not changed
    change: Json = {}
    if spec.get("suspend", False) != present.get("suspend", False):
        change["suspend"] = spec.get("suspend", False)
    if _mutable_parts(spec) != _mutable_parts(present):
        change["replicatedJobs"] = spec["replicatedJobs"]
    # The policies are applied as in the runtime, without the default of the JobSet webhook, which runs on create only.
    # The CRD then rejects the whole change: on the stock torchtune runtimes suspend and resume have no effect (seen
    # with 2.3.0 + 0.12.0).
    policies = desired["spec"].get("volumeClaimPolicies")
    if policies and policies != present.get("volumeClaimPolicies"):
        change["volumeClaimPolicies"] = policies
    return [Patch("jobsets", jobset, {"spec": change}, failure_event=failure_event)] if change else []


def _mutable_parts(spec: Json) -> list[Json]:
    """Return the parts of the pod templates that may change while a JobSet is suspended."""
    templates = (replicated["template"]["spec"]["template"] for replicated in spec.get("replicatedJobs") or [])
    return [{key: template.get(key) or template["spec"].get(key) for key in _MUTABLE_FIELDS} for template in templates]


def creation_failed_event(job: Json, error: str) -> EventWrite:
    """Return the event of a TrainJob whose objects cannot be created.

    The status does not report this failure.
    """
    text = f"TrainJob resources reconciliation failed: {error}"
    component = "trainer-trainjob-controller"
    return EventWrite("trainjobs", job, "Warning", "TrainJobResourcesCreationFailed", text, component, "Reconciling")

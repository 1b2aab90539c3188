"""Reasons why a TrainJob does not start, from its pods, events and Kueue Workload.

The TrainJob's own status never has such a reason (Trainer 2.3): it says `active`, or nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from trainjob.status.failure_rules import RULES, Category, Rule, find_category
from trainjob.status.nested_fields import get_list, get_mapping, get_str, true_conditions
from trainjob.status.pods import container_statuses, find_sidecars, rank_of, startup_problems, step_of

# The pod's own status has BackOff and FailedScheduling, too, and drops them as soon as they no longer hold.
# DNSConfigForming is a Warning of the kubelet about a pod that starts: it leaves out nameservers after the third.
_IGNORED_REASONS = frozenset({"BackOff", "FailedScheduling", "DNSConfigForming"})
_ERROR, _NO_PULL = "Failed", "Failed to pull image "
_PULL_ERROR_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff"})
_CREATION_FAILED_REASON = "TrainJobResourcesCreationFailed"
# The error for a runtime whose volumeClaimPolicies have no retentionPolicy (Trainer 2.3.0 with JobSet 0.12.0).
_INVALID_CLAIM_POLICIES = "spec.volumeClaimPolicies: Invalid value"
# A Job whose pod is refused creates a pod with another name.
_POD_NAME = re.compile(r'pods "[^"]*"')


@dataclass(frozen=True)
class Finding:
    """One reason why a job does not start.

    Attributes:
        category: category of the problem.
        object_name: object with the problem, such as `node-0` or `Job tune-node-0`.
        reason: Kubernetes' reason.
        message: Kubernetes' message.
        step: replicated job of the pod, if the object is a pod of a replicated job.
        other_count: number of other objects with the same problem.
    """

    category: Category
    object_name: str
    reason: str
    message: str
    step: str = ""
    other_count: int = 0

    @property
    def rule(self) -> Rule:
        """The rule for the finding's category."""
        return RULES[self.category]

    def __str__(self) -> str:
        others = f" and {self.other_count} more" if self.other_count else ""
        return f"{self.object_name}{others}: {self.reason}: {self.message}".rstrip(": ")


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return distinct findings, those that end the wait first.

    Findings with the same category, reason and message are merged and counted. Findings of unknown category are
    returned only if there are no others, and at most two of them.
    """
    merged: dict[tuple[Category, str, str], list[Finding]] = {}
    for finding in findings:
        message = _POD_NAME.sub("pods", finding.message)
        merged.setdefault((finding.category, finding.reason, message), []).append(finding)
    distinct = [
        replace(same[0], other_count=len({finding.object_name for finding in same}) - 1) for same in merged.values()
    ]
    known = [finding for finding in distinct if finding.category is not Category.UNKNOWN]
    return sorted(known or distinct[-2:], key=lambda finding: finding.rule.grace is None)


def get_pod_findings(pod: Mapping[str, Any]) -> list[Finding]:
    """Return the findings from the status of one of a job's pods.

    A pod that is being deleted has no findings.
    """
    if get_str(pod, "metadata", "deletionTimestamp"):
        return []
    problems = [
        _create_finding(_step_and_rank(pod), reason, message, step_of(pod)) for reason, message in startup_problems(pod)
    ]
    return [*problems, *get_sidecar_findings([pod])]


def get_sidecar_findings(pods: Iterable[Mapping[str, Any]], at: datetime | None = None) -> list[Finding]:
    """Return a finding for each pod that runs although the step's own container has succeeded.

    Args:
        pods: pods of the TrainJob.
        at: time to look at, in UTC; the step's container must have ended long enough before it. None means the time of
            each pod's status, and the step's container may have just ended.
    """
    latest_end = "" if at is None else _format_time(at - timedelta(seconds=RULES[Category.SIDECAR].delay))
    found = []
    for pod in pods:
        sidecars = find_sidecars(pod, "" if at is None else _format_time(at))
        if sidecars and (at is None or sidecars.ended <= latest_end):
            others = ", ".join(sidecars.running)
            message = f"container {sidecars.container} has succeeded; its pod still runs other containers: {others}"
            found.append(Finding(Category.SIDECAR, _step_and_rank(pod), "Sidecar", message, step_of(pod)))
    return found


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def is_admitted(workload: Mapping[str, Any] | None, before: str = "") -> bool:
    """Return whether Kueue has admitted a Workload that has not finished.

    Args:
        workload: the Workload, as the API returns it.
        before: RFC 3339 time in UTC before which it was admitted; empty means any time.
    """
    true = true_conditions(workload)
    if "Admitted" not in true or "Finished" in true:
        return False
    return not before or get_str(true["Admitted"], "lastTransitionTime") < before


def get_workload_findings(workload: Mapping[str, Any] | None, *, admitted_before: str = "") -> list[Finding]:
    """Return why a suspended job's Kueue Workload has no quota, lost it, or is not admitted.

    If the Workload is admitted, the job should not be suspended any more, which is a finding, too. The conditions are
    those of Kueue 0.17 pkg/workload.

    Args:
        workload: the Workload, as the API returns it; empty if Kueue has not created it; None if that is not known.
        admitted_before: RFC 3339 time; a later admission is no finding. Empty means any time.
    """
    if workload is None:
        return []
    if not workload:
        return [
            Finding(Category.NO_WORKLOAD, "Kueue", "NoWorkload", "Kueue has not created a Workload for this TrainJob")
        ]
    object_name = f"Workload {get_str(workload, 'metadata', 'name')}"
    # The conditions, with their status, that have a reason why the job waits.
    wait_conditions = (("QuotaReserved", False), ("Evicted", True))
    reasons = [
        (get_str(condition, "reason"), get_str(condition, "message"))
        for condition in get_list(workload, "status", "conditions")
        if (get_str(condition, "type"), condition.get("status") == "True") in wait_conditions
    ]
    reasons += [
        (f"AdmissionCheck {get_str(check, 'name')} {get_str(check, 'state')}", get_str(check, "message"))
        for check in get_list(workload, "status", "admissionChecks")
        if check.get("state") != "Ready"
    ]
    if not reasons and is_admitted(workload, admitted_before):
        message = "Kueue has admitted the TrainJob and reserved its quota, but the TrainJob is still suspended"
        return [Finding(Category.NOT_RESUMED, object_name, "Admitted", message)]
    return [Finding(find_category(*each) or Category.QUEUED, object_name, *each) for each in reasons]


def get_event_findings(
    events: Iterable[Mapping[str, Any]], job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]
) -> list[Finding]:
    """Return the findings from those Warning events that still hold.

    The events are about a TrainJob and its JobSet, Jobs, pods and claims. Events of an earlier job of the same name are
    left out, because events outlive their objects for an hour. Events that the job's pods show to be out of date are
    left out, too.

    Args:
        events: Warning events.
        job: the TrainJob.
        pods: known pods of the TrainJob.
    """
    named = {get_str(pod, "metadata", "name"): pod for pod in pods}

    @cache
    def last_created(owner: str) -> str:
        return max((_creation_time(pod) for name, pod in named.items() if name.startswith(f"{owner}-")), default="")

    found = []
    for event in events:
        reason, kind = get_str(event, "reason"), get_str(event, "involvedObject", "kind")
        name = get_str(event, "involvedObject", "name")
        if not reason or reason in _IGNORED_REASONS or _creation_time(event) < _creation_time(job):
            continue
        pod = named.get(name, {}) if kind == "Pod" else {}
        if kind == "Pod":
            # An event about an unknown pod counts only if no pod is known, because the pods may not be read yet.
            holds = _is_current(event, pod) if pod else not named
        elif reason == _CREATION_FAILED_REASON and (
            get_list(job, "status", "conditions") or get_list(job, "status", "jobsStatus")
        ):
            # Kueue 0.17 causes such an event at each eviction, which is harmless. A JobSet that can't start is not.
            holds = _INVALID_CLAIM_POLICIES in get_str(event, "message") and not named
        else:
            holds = last_created(name)[:19] <= event_time(event)[:19]
        if holds:
            found.append(
                _create_finding(
                    _step_and_rank(pod) if pod else f"{kind} {name}", reason, get_str(event, "message"), step_of(pod)
                )
            )
    return found


def _is_current(event: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether an event about a pod still holds, and explains more than its status."""
    if get_str(event, "reason") == _ERROR:  # before Kubernetes 1.32 the back-off's message lacks the cause
        pulling = any(reason in _PULL_ERROR_REASONS for reason, _ in startup_problems(pod))
        return pulling and get_str(event, "message").startswith(_NO_PULL)
    # From Kubernetes 1.29 on, this condition shows that all volumes and the sandbox exist.
    prepared = "PodReadyToStartContainers" in true_conditions(pod)
    started = any(
        get_mapping(status, "state", "running") or get_mapping(status, "lastState")
        for status in container_statuses(pod)
    )
    return get_str(pod, "status", "phase") in ("", "Pending") and not prepared and not started


def _create_finding(object_name: str, reason: str, message: str, step: str) -> Finding:
    return Finding(find_category(reason, message) or Category.UNKNOWN, object_name, reason, message, step)


def _step_and_rank(pod: Mapping[str, Any]) -> str:
    return f"{step_of(pod)}-{rank_of(pod)}"


def _creation_time(item: Mapping[str, Any]) -> str:
    return get_str(item, "metadata", "creationTimestamp")


def event_time(event: Mapping[str, Any]) -> str:
    """Return the RFC 3339 time at which an event was last seen; empty if it has none.

    Controllers that write through events.k8s.io leave lastTimestamp empty (Trainer 2.2 and JobSet 0.11 and later).
    """
    series, created = get_str(event, "series", "lastObservedTime"), get_str(event, "metadata", "creationTimestamp")
    return get_str(event, "lastTimestamp") or series or get_str(event, "eventTime") or created

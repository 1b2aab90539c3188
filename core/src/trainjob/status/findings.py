"""Reasons why a TrainJob does not start, from its pods, events and Kueue Workload.

The TrainJob's own status never has such a reason (Trainer 2.3): it says `active`, or nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from trainjob.status.pods import container_statuses, rank_of, step_of, waiting_for
from trainjob.status.reading import rows, table, text, true_conditions
from trainjob.status.trouble import RULES, Category, Rule, recognize

# The pod's own status has these reasons, too, and drops them as soon as they no longer hold.
_NOISE = frozenset({"BackOff", "FailedScheduling"})
_ERROR, _NO_PULL = "Failed", "Failed to pull image "
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff"})
_OF_TRAINJOB = "TrainJobResourcesCreationFailed"
# The error for a runtime whose volumeClaimPolicies have no retentionPolicy (Trainer 2.3.0 with JobSet 0.12.0).
_CLAIMS_FIXED = "spec.volumeClaimPolicies: Invalid value"
# A Job whose pod is refused tries again with another pod name.
_REFUSED_POD = re.compile(r'pods "[^"]*"')


@dataclass(frozen=True)
class Finding:
    """One reason why a job does not start.

    Attributes:
        category: category of the problem.
        where: object with the problem, such as `node-0` or `Job tune-node-0`.
        reason: Kubernetes' reason.
        message: Kubernetes' message.
        step: replicated job of the pod, if the object is a pod of one.
        others: number of other objects with the same problem.
    """

    category: Category
    where: str
    reason: str
    message: str
    step: str = ""
    others: int = 0

    @property
    def rule(self) -> Rule:
        """The rule for the finding's category."""
        return RULES[self.category]

    def __str__(self) -> str:
        others = f" and {self.others} more" if self.others else ""
        return f"{self.where}{others}: {self.reason}: {self.message}".rstrip(": ")


def weighed(findings: Iterable[Finding]) -> list[Finding]:
    """Return distinct findings, those that end the wait first.

    Findings with the same category, reason and message are merged and counted. Findings of unknown category are
    returned only if there are no others, and at most two of them.
    """
    merged: dict[tuple[Category, str, str], list[Finding]] = {}
    for finding in findings:
        said = _REFUSED_POD.sub("pods", finding.message)
        merged.setdefault((finding.category, finding.reason, said), []).append(finding)
    distinct = [replace(same[0], others=len({one.where for one in same}) - 1) for same in merged.values()]
    known = [finding for finding in distinct if finding.category is not Category.UNKNOWN]
    return sorted(known or distinct[-2:], key=lambda finding: finding.rule.grace is None)


def of_pod(pod: Mapping[str, Any]) -> list[Finding]:
    """Return the findings from the status of one of a job's pods.

    A pod that is being deleted has no findings.
    """
    if text(pod, "metadata", "deletionTimestamp"):
        return []
    return [_finding(_place(pod), reason, message, step_of(pod)) for reason, message in waiting_for(pod)]


def of_workload(workload: Mapping[str, Any] | None) -> list[Finding]:
    """Return why a job's Kueue Workload has no quota, lost it, or is not admitted yet.

    The conditions are those of Kueue 0.17 pkg/workload.

    Args:
        workload: the Workload, as the API returns it; empty if Kueue has not created it; None if that is not known.
    """
    if workload is None:
        return []
    if not workload:
        return [Finding(Category.NO_WORKLOAD, "Kueue", "NoWorkload", "it has made no Workload for this TrainJob")]
    where = f"Workload {text(workload, 'metadata', 'name')}"
    telling = (("QuotaReserved", False), ("Evicted", True))
    said = [
        (text(condition, "reason"), text(condition, "message"))
        for condition in rows(workload, "status", "conditions")
        if (text(condition, "type"), condition.get("status") == "True") in telling
    ]
    said += [
        (f"AdmissionCheck {text(check, 'name')} {text(check, 'state')}", text(check, "message"))
        for check in rows(workload, "status", "admissionChecks")
        if check.get("state") != "Ready"
    ]
    return [Finding(recognize(*one) or Category.QUEUED, where, *one) for one in said]


def of_events(
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
    named = {text(pod, "metadata", "name"): pod for pod in pods}

    @cache
    def last_made(maker: str) -> str:
        return max((_made(pod) for name, pod in named.items() if name.startswith(f"{maker}-")), default="")

    found = []
    for event in events:
        reason, kind = text(event, "reason"), text(event, "involvedObject", "kind")
        name = text(event, "involvedObject", "name")
        if not reason or reason in _NOISE or _made(event) < _made(job):
            continue
        pod = named.get(name, {}) if kind == "Pod" else {}
        if kind == "Pod":
            holds = _still_so(event, pod) if pod else not named  # without known pods, the event counts
        elif reason == _OF_TRAINJOB and (rows(job, "status", "conditions") or rows(job, "status", "jobsStatus")):
            # Kueue 0.17 causes such an event at each eviction, which is harmless. A JobSet that can't start is not.
            holds = _CLAIMS_FIXED in text(event, "message") and not named
        else:
            holds = last_made(name)[:19] <= event_time(event)[:19]
        if holds:
            found.append(
                _finding(_place(pod) if pod else f"{kind} {name}", reason, text(event, "message"), step_of(pod))
            )
    return found


def _still_so(event: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether an event adds to its pod's status and still holds."""
    if text(event, "reason") == _ERROR:  # before Kubernetes 1.32 the back-off's message lacks the cause
        pulling = any(reason in _PULLING for reason, _ in waiting_for(pod))
        return pulling and text(event, "message").startswith(_NO_PULL)
    # From Kubernetes 1.29 on, this condition shows that all volumes and the sandbox exist.
    prepared = "PodReadyToStartContainers" in true_conditions(pod)
    begun = any(table(one, "state", "running") or table(one, "lastState") for one in container_statuses(pod))
    return text(pod, "status", "phase") in ("", "Pending") and not prepared and not begun


def _finding(where: str, reason: str, message: str, step: str) -> Finding:
    return Finding(recognize(reason, message) or Category.UNKNOWN, where, reason, message, step)


def _place(pod: Mapping[str, Any]) -> str:
    return f"{step_of(pod)}-{rank_of(pod)}"


def _made(item: Mapping[str, Any]) -> str:
    return text(item, "metadata", "creationTimestamp")


def event_time(event: Mapping[str, Any]) -> str:
    """Return the RFC 3339 time at which an event was last seen; empty if it has none.

    Controllers that write through events.k8s.io leave lastTimestamp empty (Trainer 2.2 and JobSet 0.11 and later).
    """
    series, created = text(event, "series", "lastObservedTime"), text(event, "metadata", "creationTimestamp")
    return text(event, "lastTimestamp") or series or text(event, "eventTime") or created

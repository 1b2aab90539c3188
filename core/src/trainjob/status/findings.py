"""Why a TrainJob does not get going, from everything around it that says so: pods, events, its Kueue Workload.

Its own status never does (Trainer 2.3): it says `active`, or nothing at all.
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

# What a pod's own status says, too, and says no longer when it is over.
_NOISE = frozenset({"BackOff", "FailedScheduling"})
_ERROR, _NO_PULL = "Failed", "Failed to pull image "
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff"})
_OF_TRAINJOB = "TrainJobResourcesCreationFailed"
# Of a runtime whose volumeClaimPolicies have no retentionPolicy (Trainer 2.3.0 with JobSet 0.12.0).
_CLAIMS_FIXED = "spec.volumeClaimPolicies: Invalid value"
# A Job that may have no pod tries each time with another name.
_REFUSED_POD = re.compile(r'pods "[^"]*"')


@dataclass(frozen=True)
class Finding:
    """One reason why a job does not get going.

    Attributes:
        category: which kind of trouble it is.
        where: whom it is about, such as `node-0`, or `Job tune-node-0`.
        reason: Kubernetes' reason.
        message: its text.
        step: the replicated job, where it is about a pod of one.
        others: how many more say the same.
    """

    category: Category
    where: str
    reason: str
    message: str
    step: str = ""
    others: int = 0

    @property
    def rule(self) -> Rule:
        """What follows from it."""
        return RULES[self.category]

    def __str__(self) -> str:
        others = f" and {self.others} more" if self.others else ""
        return f"{self.where}{others}: {self.reason}: {self.message}".rstrip(": ")


def weighed(findings: Iterable[Finding]) -> list[Finding]:
    """These findings, each once however many say it, the hopeless first; what nobody knows only where all is that."""
    merged: dict[tuple[Category, str, str], list[Finding]] = {}
    for finding in findings:
        said = _REFUSED_POD.sub("pods", finding.message)
        merged.setdefault((finding.category, finding.reason, said), []).append(finding)
    distinct = [replace(same[0], others=len({one.where for one in same}) - 1) for same in merged.values()]
    known = [finding for finding in distinct if finding.category is not Category.UNKNOWN]
    return sorted(known or distinct[-2:], key=lambda finding: finding.rule.grace is None)


def of_pod(pod: Mapping[str, Any]) -> list[Finding]:
    """What the status of one of a job's pods says; nothing for one that is being deleted."""
    if text(pod, "metadata", "deletionTimestamp"):
        return []
    return [_finding(_place(pod), reason, message, step_of(pod)) for reason, message in waiting_for(pod)]


def of_workload(workload: Mapping[str, Any] | None) -> list[Finding]:
    """Why a job's Kueue Workload has no quota, lost what it had, or is not admitted yet (Kueue 0.17 pkg/workload).

    Args:
        workload: as the API gives it; empty where Kueue has made none; None when that is not known.
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
    """What Warning events about a TrainJob, its JobSet, Jobs, pods and claims say that holds still.

    Left out are those of an earlier job of its name - events outlive what they are about, for an hour - and those that
    are out of date, by what its pods say.
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
            holds = _still_so(event, pod) if pod else not named  # who can't see pods believes events
        elif reason == _OF_TRAINJOB and (rows(job, "status", "conditions") or rows(job, "status", "jobsStatus")):
            # Kueue 0.17 makes one at each eviction, which is harmless; a JobSet that refuses to begin is not.
            holds = _CLAIMS_FIXED in text(event, "message") and not named
        else:
            holds = last_made(name)[:19] <= event_time(event)[:19]
        if holds:
            found.append(
                _finding(_place(pod) if pod else f"{kind} {name}", reason, text(event, "message"), step_of(pod))
            )
    return found


def _still_so(event: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether an event about a pod tells more than the pod's own status, and still holds."""
    if text(event, "reason") == _ERROR:  # the kubelet's back-off names the cause from Kubernetes 1.32 on only
        pulling = any(reason in _PULLING for reason, _ in waiting_for(pod))
        return pulling and text(event, "message").startswith(_NO_PULL)
    # From Kubernetes 1.29 on it says when all volumes are there and the sandbox is.
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
    """When an event was last seen, in RFC 3339; empty when nobody says.

    Controllers that write through events.k8s.io leave lastTimestamp empty (Trainer 2.2 and JobSet 0.11 on).
    """
    series, created = text(event, "series", "lastObservedTime"), text(event, "metadata", "creationTimestamp")
    return text(event, "lastTimestamp") or series or text(event, "eventTime") or created

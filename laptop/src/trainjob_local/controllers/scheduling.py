"""The scheduler's decision about one pod on the only Node; pure functions.

The messages are those of Kubernetes.

Source: Kubernetes 1.36 `pkg/scheduler` (plugins noderesources, nodeaffinity, volumebinding, schedulinggates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from trainjob_local.controllers.conditions import build_condition, with_condition
from trainjob_local.kubelet.pod_status import qos_class
from trainjob_local.objects import Json
from trainjob_local.quantity import parse_quantity

__all__ = ["mounted_claims", "pod_requests", "unschedulable_reason", "unschedulable_status"]

_PREEMPTION_TEXT = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 {}"
_PREEMPTION_UNHELPFUL = "Preemption is not helpful for scheduling."
_NO_VICTIMS = "No preemption victims found for incoming pod."
_SELECTOR = "1 node(s) didn't match Pod's node affinity/selector"


def pod_requests(pod: Json) -> dict[str, Decimal]:
    """Return the resources that a pod requests, by name, including one pod (`pods`).

    For each resource this is the sum over the containers, or the request of one init container if that is larger. A
    limit counts if there is no request.
    """
    spec = pod["spec"]
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or []:
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in _container_requests(container).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return {**total, "pods": Decimal(1)}


def _container_requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    entries = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_quantity(value) for name, value in entries.items()}


def mounted_claims(pod: Json) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    volumes = pod["spec"].get("volumes") or []
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]


def unschedulable_reason(
    pod: Json, node: Json | None, others: Sequence[Json], find_claim: Callable[[str], Json | None]
) -> str:
    """Return why a pod cannot be scheduled on the Node; empty if it can.

    Args:
        pod: the pod.
        node: the Node, or None if it does not exist or has no allocatable resources yet.
        others: pods on the Node that have not ended.
        find_claim: function that looks up a claim of the pod's namespace by name; it returns None if the claim does not
            exist.
    """
    if node is None:
        return "no nodes available to schedule pods"
    for name in mounted_claims(pod):
        claim = find_claim(name)
        if claim is None:
            return f'0/1 nodes are available: persistentvolumeclaim "{name}" not found. not found'
        if "deletionTimestamp" in claim["metadata"]:
            return f'0/1 nodes are available: persistentvolumeclaim "{name}" is being deleted. not found'
    if not _matches_node(pod, node):
        return _unschedulable_message([_SELECTOR], _PREEMPTION_UNHELPFUL)
    size = {name: parse_quantity(value) for name, value in node["status"]["allocatable"].items()}
    requested, used = pod_requests(pod), _sum(map(pod_requests, others))
    lacking = [
        name for name, amount in requested.items() if amount > size.get(name, Decimal(0)) - used.get(name, Decimal(0))
    ]
    if not lacking:
        return ""
    never = any(requested[name] > size.get(name, Decimal(0)) for name in lacking)
    reasons = sorted(_insufficient(name) for name in lacking)
    return _unschedulable_message(reasons, _PREEMPTION_UNHELPFUL if never else _NO_VICTIMS)


def unschedulable_status(pod: Json, message: str, now: datetime) -> Json:
    """Return the status of a pod that stays unscheduled."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    condition = {**build_condition("PodScheduled", False, "Unschedulable", message), "lastProbeTime": None}
    return {"conditions": with_condition(conditions, condition, now), "qosClass": qos_class(pod["spec"])}


def _insufficient(name: str) -> str:
    return "1 Too many pods" if name == "pods" else f"1 Insufficient {name}"


def _unschedulable_message(reasons: Sequence[str], preemption: str) -> str:
    return f"0/1 nodes are available: {', '.join(reasons)}. {_PREEMPTION_TEXT.format(preemption)}"


def _sum(all_requests: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for requests in all_requests:
        for name, amount in requests.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _matches_node(pod: Json, node: Json) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.get("nodeSelectorTerms") or [] if required else None
    return terms is None or any(_term(term, node) for term in terms)


def _term(term: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions = [(one, labels) for one in term.get("matchExpressions") or []]
    expressions += [(one, fields) for one in term.get("matchFields") or []]
    return bool(expressions) and all(_matches(one, values) for one, values in expressions)


def _matches(expression: Json, values: Mapping[str, str]) -> bool:
    found, operator = values.get(expression.get("key", "")), str(expression.get("operator"))
    wanted: list[str] = expression.get("values") or []
    if operator in ("Exists", "DoesNotExist"):
        return (found is not None) == (operator == "Exists")
    if operator in ("In", "NotIn"):
        return (found in wanted) == (operator == "In")
    try:
        label, limit = int(found or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return operator in ("Gt", "Lt") and (label > limit if operator == "Gt" else label < limit)

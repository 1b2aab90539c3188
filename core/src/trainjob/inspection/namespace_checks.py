"""Check of what a namespace adds to pods or requires of them, with the line to add to a step.

The trial TrainJob of the check has no pods, so it does not show any of this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import ClusterError
from trainjob.inspection.check_result import CheckResult, Grade, join_names
from trainjob.lifecycle import find_digest
from trainjob.manifest import labels
from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob.status.platform_facts import PlatformFacts

_NO_ISTIO = 'labels={"sidecar.istio.io/inject": "false"}'
# Labels (Istio) and annotations (Linkerd) of a namespace that add a container to its pods, their values, and the line
# of a step that prevents it. An empty value means any value.
_INJECTIONS = (
    ("istio-injection", "enabled", _NO_ISTIO),
    ("istio.io/rev", "", _NO_ISTIO),
    ("linkerd.io/inject", "enabled", 'annotations={"linkerd.io/inject": "disabled"}'),
)
_POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
# What a container needs for the level `restricted` (Kubernetes 1.36, pod-security-admission/policy).
_RESTRICTED_PLACEMENT = (
    'placement={"security_context": {"run_as_non_root": True, "run_as_user": 1000, "fs_group": 1000, '
    '"seccomp_profile": {"type": "RuntimeDefault"}}, "container_security_context": {"allow_privilege_escalation": '
    'False, "capabilities": {"drop": ["ALL"]}}}'
)
# A ResourceQuota of these refuses pods whose containers do not set them (Kubernetes 1.36, pkg/quota/v1/evaluator/core).
_REQUIRED_BY_QUOTAS = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "cpu", "memory")
_RESOURCES_LINE = 'resources_per_node={"cpu": "4", "memory": "16Gi"}'


def check_nodes(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield a row if attempts hung, with the nodes; the one of the most runs is the first."""
    runs = defaultdict[str, set[str]](set)
    for job in () if isinstance(platform.jobs, ClusterError) else platform.jobs:
        for node in labels.list_hung_on(job):
            runs[node].add(find_digest(job))
    if runs:
        counts = sorted(((len(found), node) for node, found in runs.items()), key=lambda each: (-each[0], each[1]))
        nodes = join_names([f"{node} ({count} run{'s' if count > 1 else ''})" for count, node in counts])
        advice = "if several runs hung on one node, cordon it, and look at its GPUs, network and disks"
        yield CheckResult("nodes", Grade.WARNING, f"trainings hung on {nodes}", advice)


def check_sidecars(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield a row if the namespace adds containers to its pods, or cannot be read."""
    name, namespace = "sidecars", platform.namespace_object
    if isinstance(namespace, ClusterError):
        wrong = f"the labels of namespace {platform.namespace} can't be read: sidecars and Pod Security are not checked"
        yield CheckResult(name, Grade.UNKNOWN, wrong)
        return
    metadata = get_mapping(namespace, "metadata")
    marks = {**get_mapping(metadata, "annotations"), **get_mapping(metadata, "labels")}
    if marks.get("istio-injection") == "disabled":
        marks.pop("istio.io/rev", None)
    found = {
        f"{key}={marks[key]}": line for key, value, line in _INJECTIONS if marks.get(key) and value in ("", marks[key])
    }
    if found:
        wrong = (
            f"the namespace adds a container to each pod ({join_names(list(found))}): the pods of a training may not "
            "reach one another, and they run until this container ends"
        )
        yield CheckResult(
            name, Grade.WARNING, wrong, f"add to each step: {' and '.join(dict.fromkeys(found.values()))}"
        )


def check_pod_security(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield a row if the namespace enforces a Pod Security level other than `privileged`."""
    if isinstance(platform.namespace_object, ClusterError):
        return
    level = get_str(platform.namespace_object, "metadata", "labels", _POD_SECURITY_LABEL)
    if level == "restricted":
        wrong = "Pod Security enforces the level restricted: pods without a security context are refused"
        advice = f"use a runtime of manifests/runtimes, or add to each step: {_RESTRICTED_PLACEMENT}"
        yield CheckResult("pod security", Grade.WARNING, wrong, advice)
    elif level == "baseline":
        yield CheckResult("pod security", Grade.OK, "Pod Security enforces the level baseline")


def check_quotas(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield a row about the ResourceQuotas: the requests and limits that they require.

    A LimitRange may set them. Quotas with a scope are left out, because they apply to some pods only.
    """
    name, quotas, ranges = "quotas", platform.resource_quotas, platform.limit_ranges
    if isinstance(quotas, ClusterError):
        yield CheckResult(name, Grade.UNKNOWN, f"the ResourceQuotas of namespace {platform.namespace} can't be listed")
        return
    given = set() if isinstance(ranges, ClusterError) else set(_list_defaults(ranges))
    required: dict[str, list[str]] = {}
    for quota in quotas:
        spec = get_mapping(quota, "spec")
        missing = [key for key in _REQUIRED_BY_QUOTAS if key in get_mapping(spec, "hard") and key not in given]
        if missing and not (spec.get("scopes") or spec.get("scopeSelector")):
            required[get_str(quota, "metadata", "name")] = missing
    if required:
        each = "; ".join(f"{quota}: {', '.join(missing)}" for quota, missing in required.items())
        wrong = f"ResourceQuotas refuse pods with a container that does not set their resources ({each})"
        advice = f"add to each step: {_RESOURCES_LINE}; other containers of a runtime need them in the runtime"
        yield CheckResult(name, Grade.WARNING, wrong, advice)
    elif quotas:
        yield CheckResult(name, Grade.OK, join_names([get_str(quota, "metadata", "name") for quota in quotas]))


def check_limits(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield a row with what the LimitRanges set for a container or permit."""
    name, ranges = "limits", platform.limit_ranges
    if isinstance(ranges, ClusterError):
        yield CheckResult(name, Grade.UNKNOWN, f"the LimitRanges of namespace {platform.namespace} can't be listed")
        return
    rules = [
        f"{get_str(limits, 'type')} {word} {_format_amounts(get_mapping(limits, key))}"
        for found in ranges
        for limits in get_list(found, "spec", "limits")
        for key, word in (("default", "by default at most"), ("min", "at least"), ("max", "at most"))
        if get_str(limits, "type") in ("Container", "Pod") and get_mapping(limits, key)
    ]
    if rules:
        wrong = f"LimitRanges limit pods: {'; '.join(rules)}"
        yield CheckResult(name, Grade.WARNING, wrong, f"add to each step amounts in these limits: {_RESOURCES_LINE}")


def _list_defaults(ranges: Any) -> Iterator[str]:
    """Yield the resources of a quota that the LimitRanges set for each container.

    A container without a request gets its limit as the request (Kubernetes 1.36).
    """
    for found in ranges:
        for limits in get_list(found, "spec", "limits"):
            if get_str(limits, "type") == "Container":
                for resource in {**get_mapping(limits, "default"), **get_mapping(limits, "max")}:
                    yield f"limits.{resource}"
                    yield from (f"requests.{resource}", resource)
                for resource in {**get_mapping(limits, "defaultRequest"), **get_mapping(limits, "min")}:
                    yield from (f"requests.{resource}", resource)


def _format_amounts(amounts: Mapping[str, Any]) -> str:
    return ", ".join(f"{resource}: {amount}" for resource, amount in amounts.items())

"""What the server itself demands of, and fills into, the kinds it has no description of.

Source: k8s.io/kubernetes 1.36 `pkg/apis/core/validation` and `pkg/registry`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainjob_local.apiserver.refusals import FieldProblem
from trainjob_local.apiserver.schema import Field
from trainjob_local.apiserver.schemas.pod_rules import label_problems, pod_problems

__all__ = ["TYPES", "complete", "essential_problems"]

Json = dict[str, Any]

_POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_POD_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def complete(plural: str, body: Json) -> Json:
    """Fills in what the server's own registry does for namespaces and Secrets; gives the changed object."""
    if plural == "namespaces":
        metadata = body["metadata"]
        labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
        spec = {"finalizers": ["kubernetes"], **(body.get("spec") or {})}
        return {**body, "metadata": {**metadata, "labels": labels}, "spec": spec}
    if plural == "secrets":
        given = body.pop("stringData", None) or {}
        data = {key: base64.b64encode(text.encode()).decode() for key, text in given.items()}
        if data:
            body["data"] = {**(body.get("data") or {}), **data}
        return {"type": "Opaque", **body}
    return body


def essential_problems(plural: str, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[FieldProblem]:
    """Lists what is wrong with an object of a kind that has no description."""
    check = _CHECKS.get(plural)
    return list(check(new, old)) if check else []


def _pod(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    spec = new.get("spec") or {}
    yield from pod_problems(spec, "spec")
    if old is not None and _fixed_part(spec) != _fixed_part(old.get("spec") or {}):
        yield FieldProblem("spec", "Forbidden", detail=_POD_FIXED)


def _fixed_part(spec: Mapping[str, Any]) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _POD_MAY_CHANGE}
    for key in ("containers", "initContainers"):
        fixed[key] = [{**container, "image": ""} for container in fixed.get(key) or ()]
    return fixed


def _claim(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    spec = new.get("spec") or {}
    if not spec.get("accessModes"):
        yield FieldProblem("spec.accessModes", "Required value", detail="at least 1 access mode is required")
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        yield FieldProblem("spec.resources[storage]", "Required value")
    if old is not None:
        before = old.get("spec") or {}
        changed = {key for key in spec.keys() | before.keys() if spec.get(key) != before.get(key)}
        binding = {"volumeName"} if not before.get("volumeName") else set()
        if changed - binding - {"resources", "volumeAttributesClassName"}:
            yield FieldProblem("spec", "Forbidden", detail=_CLAIM_FIXED)


def _job(new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    spec = new.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    for field in _COUNTS:
        if (count := spec.get(field, 0)) < 0:
            yield FieldProblem(f"spec.{field}", "Invalid value", str(count), "must be greater than or equal to 0")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    yield from label_problems(labels, "spec.template.labels")
    yield from pod_problems(template, "spec.template.spec")
    policy = template.get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        field, detail = "spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'
        if policy:
            yield FieldProblem(field, "Unsupported value", f'"{policy}"', 'supported values: "OnFailure", "Never"')
        else:
            yield FieldProblem(field, "Required value", detail=detail)


def _role(new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    for index, rule in enumerate(new.get("rules") or ()):
        if not rule.get("verbs"):
            yield FieldProblem(
                f"rules[{index}].verbs", "Required value", detail="verbs must contain at least one value"
            )


def _binding(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    reference = new.get("roleRef") or {}
    if not reference.get("name"):
        yield FieldProblem("roleRef.name", "Required value")
    if old is not None and reference != old.get("roleRef"):
        yield FieldProblem("roleRef", "Invalid value", detail="cannot change roleRef")


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any] | None], Iterator[FieldProblem]]] = {
    "pods": _pod,
    "persistentvolumeclaims": _claim,
    "jobs": _job,
    "roles": _role,
    "clusterroles": _role,
    "rolebindings": _binding,
    "clusterrolebindings": _binding,
}

_STRING = Field("string", "string")
_CONTAINER = Field("object", "v1.Container", {"name": _STRING, "image": _STRING})
_CONTAINERS = Field("array", "[]v1.Container", items=_CONTAINER)
_POD_SPEC = Field(
    "object", "v1.PodSpec", {"containers": _CONTAINERS, "initContainers": _CONTAINERS, "nodeName": _STRING}
)
_OWNERS = Field(
    "array",
    "[]v1.OwnerReference",
    items=Field(
        "object",
        "v1.OwnerReference",
        {
            **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
            "blockOwnerDeletion": Field("boolean", "bool"),
        },
    ),
)
_METADATA = Field(
    "object",
    "v1.ObjectMeta",
    {
        "labels": Field("map", "map[string]string", items=_STRING),
        "annotations": Field("map", "map[string]string", items=_STRING),
        "finalizers": Field("array", "[]string", items=_STRING),
        "ownerReferences": _OWNERS,
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), _STRING),
    },
)
_RULES = Field(
    "array",
    "[]v1.PolicyRule",
    items=Field("object", "v1.PolicyRule", {"verbs": Field("array", "[]string", items=_STRING)}),
)


def _typed(**more: Field) -> Field:
    return Field("object", "", {"metadata": _METADATA, **more})


def _spec(go: str, **properties: Field) -> Field:
    return _typed(spec=Field("object", go, properties))


_TEMPLATE = Field("object", "v1.PodTemplateSpec", {"metadata": _METADATA, "spec": _POD_SPEC})
TYPES: Mapping[str, Field] = {
    "": _typed(),
    "pods": _typed(spec=_POD_SPEC),
    "jobs": _spec("v1.JobSpec", template=_TEMPLATE),
    "persistentvolumeclaims": _spec(
        "v1.PersistentVolumeClaimSpec",
        accessModes=Field("array", "[]v1.PersistentVolumeAccessMode", items=_STRING),
        resources=Field("object", "v1.VolumeResourceRequirements", {"requests": Field("map", "v1.ResourceList")}),
    ),
    "secrets": _typed(
        stringData=Field("map", "map[string]string", items=_STRING),
        data=Field("map", "map[string][]uint8", items=_STRING),
    ),
    "namespaces": _spec("v1.NamespaceSpec"),
    "roles": _typed(rules=_RULES),
    "clusterroles": _typed(rules=_RULES),
    "rolebindings": _typed(roleRef=Field("object", "v1.RoleRef")),
    "clusterrolebindings": _typed(roleRef=Field("object", "v1.RoleRef")),
}
"""Types of what the server itself reads, by plural; the empty one is for all other kinds."""

"""What a pod's spec may say, in a pod or in a Job's template. Pure, with the API server's texts.

Not everything that Kubernetes checks: what a runtime or a TrainJob is likely to get wrong.
Source: Kubernetes 1.36 `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob_local.apiserver.naming import label_key_problems, label_value_problems, name_texts
from trainjob_local.apiserver.refusals import FieldProblem
from trainjob_local.apiserver.schemas.container_rules import container_problems

__all__ = ["label_problems", "pod_problems"]

Json = Mapping[str, Any]

_LARGEST_ID = 2**31 - 1
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED_IN = {
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
    "configMap": ("name",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
}
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def pod_problems(spec: Json, path: str) -> Iterator[FieldProblem]:
    """Lists what is wrong with a pod's spec."""
    usable: set[str] = set()
    yield from _volumes(spec, path, usable)
    yield from _containers(spec, path, usable)
    yield from label_problems(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from _ids(
        spec.get("securityContext") or {}, f"{path}.securityContext", ("fsGroup", "runAsUser", "runAsGroup")
    )
    account = spec.get("serviceAccountName")
    for wrong in name_texts("subdomain", account) if account else []:
        yield FieldProblem(f"{path}.serviceAccountName", "Invalid value", json.dumps(account), wrong)
    yield from _affinity((spec.get("affinity") or {}).get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        for wrong in label_key_problems(gate.get("name") or ""):
            yield FieldProblem(f"{path}.schedulingGates[{index}]", "Invalid value", json.dumps(gate.get("name")), wrong)


def _containers(spec: Json, path: str, volumes: set[str]) -> Iterator[FieldProblem]:
    if not spec.get("containers"):
        yield FieldProblem(f"{path}.containers", "Required value")
    seen: set[str] = set()
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            where, name = f"{path}.{key}[{index}]", str(container.get("name") or "")
            yield from _label_name(name, f"{where}.name")
            if name and name in seen:
                yield FieldProblem(f"{where}.name", "Duplicate value", f'"{name}"')
            seen.add(name)
            if not container.get("image"):
                yield FieldProblem(f"{where}.image", "Required value")
            yield from container_problems(container, where, volumes)
            context = container.get("securityContext") or {}
            yield from _ids(context, f"{where}.securityContext", ("runAsUser", "runAsGroup"))


def _label_name(name: str, path: str) -> Iterator[FieldProblem]:
    if not name:
        yield FieldProblem(path, "Required value")
        return
    for wrong in name_texts("label", name):
        yield FieldProblem(path, "Invalid value", json.dumps(name), wrong)


def _volumes(spec: Json, path: str, usable: set[str]) -> Iterator[FieldProblem]:
    """Adds the names of volumes that can be mounted to `usable`: what a broken one holds can't be."""
    for index, volume in enumerate(spec.get("volumes") or ()):
        where, name = f"{path}.volumes[{index}]", volume.get("name") or ""
        problems = [*_source(volume, where), *_label_name(name, f"{where}.name")]
        if name and name in usable:
            problems.append(FieldProblem(f"{where}.name", "Duplicate value", json.dumps(name)))
        if not problems:
            usable.add(name)
        yield from problems


def _source(volume: Json, path: str) -> Iterator[FieldProblem]:
    kinds = [kind for kind in volume if kind != "name" and volume[kind] is not None]
    for kind in kinds[1:]:
        yield FieldProblem(f"{path}.{kind}", "Forbidden", detail="may not specify more than 1 volume type")
    for field in _REQUIRED_IN.get(kinds[0], ()) if kinds else ():
        if not volume[kinds[0]].get(field):
            yield FieldProblem(f"{path}.{kinds[0]}.{field}", "Required value")
    for where, target in _targets(volume, path):
        yield from _below(target, where)


def _targets(volume: Json, path: str) -> Iterator[tuple[str, str]]:
    """Field and value of each path that a file of the volume gets."""
    for kind in ("secret", "configMap"):
        for index, item in enumerate((volume.get(kind) or {}).get("items") or ()):
            yield f"{path}.{kind}.items[{index}].path", item.get("path") or ""
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        yield f"{path}.downwardAPI.path", item.get("path") or ""
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        yield from _targets(source, f"{path}.projected.sources[{index}]")
        if token := source.get("serviceAccountToken"):
            yield f"{path}.projected.path", token.get("path") or ""


def _below(target: str, path: str) -> Iterator[FieldProblem]:
    wrong = "must not start with '..'" if target.startswith("..") else ""
    wrong = "must not contain '..'" if ".." in target.split("/") else wrong
    wrong = "must be a relative path" if target.startswith("/") else wrong
    if not target:
        yield FieldProblem(path, "Required value")
    elif wrong:
        yield FieldProblem(path, "Invalid value", json.dumps(target), wrong)


def label_problems(labels: Json, path: str) -> Iterator[FieldProblem]:
    """Lists what is wrong with labels, or with a selector of nodes."""
    for key, value in labels.items():
        for wrong in label_key_problems(key):
            yield FieldProblem(path, "Invalid value", json.dumps(key), wrong)
        for wrong in label_value_problems(value):
            yield FieldProblem(path, "Invalid value", json.dumps(value), wrong)


def _ids(context: Json, path: str, fields: tuple[str, ...]) -> Iterator[FieldProblem]:
    for field in fields:
        value = context.get(field, 0)
        if not 0 <= value <= _LARGEST_ID:
            text = f"must be between 0 and {_LARGEST_ID}, inclusive"
            yield FieldProblem(f"{path}.{field}", "Invalid value", str(value), text)


def _affinity(affinity: Json, path: str) -> Iterator[FieldProblem]:
    required = affinity.get(_REQUIRED)
    if required is not None:
        where, terms = f"{path}.{_REQUIRED}.nodeSelectorTerms", required.get("nodeSelectorTerms") or ()
        if not terms:
            yield FieldProblem(where, "Required value", detail="must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _term(term, f"{where}[{index}]")
    for index, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        where, weight = f"{path}.{_PREFERRED}[{index}]", preferred.get("weight", 0)
        if not 1 <= weight <= 100:
            yield FieldProblem(f"{where}.weight", "Invalid value", str(weight), "must be in the range 1-100")
        yield from _term(preferred.get("preference") or {}, f"{where}.preference")


def _term(term: Json, path: str) -> Iterator[FieldProblem]:
    for index, one in enumerate(term.get("matchExpressions") or ()):
        where, operator, values = f"{path}.matchExpressions[{index}]", one.get("operator", ""), one.get("values")
        if operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldProblem(f"{where}.values", "Required value", detail=text)
        if operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield FieldProblem(f"{where}.values", "Forbidden", detail=text)
        if operator not in _OPERATORS:
            yield FieldProblem(
                f"{where}.operator", "Invalid value", json.dumps(operator), "not a valid selector operator"
            )
        for wrong in label_key_problems(one.get("key") or ""):
            yield FieldProblem(f"{where}.key", "Invalid value", json.dumps(one.get("key")), wrong)


def _toleration(one: Json, path: str) -> Iterator[FieldProblem]:
    key, operator = one.get("key") or "", one.get("operator") or ""
    value, effect = one.get("value") or "", one.get("effect") or ""
    for wrong in label_key_problems(key) if key else []:
        yield FieldProblem(f"{path}.key", "Invalid value", json.dumps(key), wrong)
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield FieldProblem(f"{path}.operator", "Invalid value", json.dumps(operator), text)
    if "tolerationSeconds" in one and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield FieldProblem(f"{path}.effect", "Invalid value", json.dumps(effect), text)
    if operator in ("", "Equal"):
        for wrong in label_value_problems(value):
            yield FieldProblem(f"{path}.operator", "Invalid value", json.dumps(value), wrong)
    elif operator == "Exists":
        if value:
            text = "value must be empty when `operator` is 'Exists'"
            yield FieldProblem(f"{path}.operator", "Invalid value", json.dumps(value), text)
    else:
        text = 'supported values: "Equal", "Exists"'
        yield FieldProblem(f"{path}.operator", "Unsupported value", json.dumps(operator), text)
    if effect and effect not in _EFFECTS:
        text = f"supported values: {', '.join(map(json.dumps, _EFFECTS))}"
        yield FieldProblem(f"{path}.effect", "Unsupported value", json.dumps(effect), text)

"""Types, checks and defaults of Kubernetes' own kinds, and of bodies that are not stored.

The module has only those that the controllers and the kubelet rely on. A real API server rejects much more.
Source: k8s.io/kubernetes 1.36 `pkg/apis/core/validation` and `pkg/registry`, k8s.io/api 0.36.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from trainjob_local.apiserver.naming import label_key_problems, label_value_problems, name_error_messages
from trainjob_local.apiserver.schema import (
    BOOLEAN,
    INT64,
    LABELS,
    MAP,
    QUANTITY,
    STRING,
    STRINGS,
    Schema,
    array_of,
    object_of,
)
from trainjob_local.apiserver.status_errors import FieldProblem

__all__ = ["BUILTIN_SCHEMAS", "METADATA", "REQUEST_BODY_SCHEMAS", "builtin_problems", "with_builtin_defaults"]

Json = dict[str, Any]

_CONTAINER_LISTS = ("containers", "initContainers")
_MUTABLE_POD_FIELDS = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_POD_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CLAIM_IMMUTABLE_TEXT = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_MAX_CONFIG_MAP_BYTES = 1 << 20
_VARIABLE = re.compile("[ -<>-~]+")
_VARIABLE_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_REQUIRED_VOLUME_FIELDS = {
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
    "configMap": ("name",),
    "hostPath": ("path",),
}


def with_builtin_defaults(plural: str, body: Json) -> Json:
    """Return a Namespace or Secret with the API server's defaults; return others unchanged."""
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


def builtin_problems(plural: str, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[FieldProblem]:
    """Return the problems of an object of a built-in kind.

    Args:
        plural: plural of the resource; a resource without checks has no problems.
        new: the object to check.
        old: the object before the change; None for a new object.
    """
    check = _CHECKS.get(plural)
    return list(check(new, old)) if check else []


def _validate_pod(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    spec = new.get("spec") or {}
    yield from _pod_spec_problems(spec, "spec")
    if old is None:
        return
    before = old.get("spec") or {}
    other = [key for key in _CONTAINER_LISTS if len(spec.get(key) or ()) != len(before.get(key) or ())]
    for key in other:
        yield FieldProblem(f"spec.{key}", "Forbidden", detail="pod updates may not add or remove containers")
    if not other and _immutable_pod_fields(spec) != _immutable_pod_fields(before):
        yield FieldProblem("spec", "Forbidden", detail=_POD_IMMUTABLE_TEXT)


def _pod_spec_problems(spec: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    """Yield the reasons why the kubelet could not run a pod.

    The function checks names, images, volumes, and file paths that lead out of their volume.
    """
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        problems = list(_volume_problems(volume, f"{path}.volumes[{index}]"))
        if not problems:  # a broken volume cannot be mounted
            volumes.add(volume["name"])
        yield from problems
    if not spec.get("containers"):
        yield FieldProblem(f"{path}.containers", "Required value")
    for key in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(key) or ()):
            yield from _container_problems(container, f"{path}.{key}[{index}]", volumes)


def _container_problems(container: Mapping[str, Any], path: str, volumes: Collection[str]) -> Iterator[FieldProblem]:
    yield from _name_problems(container.get("name") or "", f"{path}.name")
    if not container.get("image"):
        yield FieldProblem(f"{path}.image", "Required value")
    for index, variable in enumerate(container.get("env") or ()):
        where, name = f"{path}.env[{index}].name", variable.get("name") or ""
        if not name:
            yield FieldProblem(where, "Required value")
        elif not _VARIABLE.fullmatch(name):
            yield FieldProblem(where, "Invalid value", json.dumps(name, ensure_ascii=False), _VARIABLE_TEXT)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where, name = f"{path}.volumeMounts[{index}]", mount.get("name") or ""
        if name not in volumes:
            yield FieldProblem(f"{where}.name", "Not found", json.dumps(name))
        if not mount.get("mountPath"):
            yield FieldProblem(f"{where}.mountPath", "Required value")
        if mount.get("subPath"):
            yield from _path_problems(mount["subPath"], f"{where}.subPath")


def _volume_problems(volume: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    yield from _name_problems(volume.get("name") or "", f"{path}.name")
    for kind, fields in _REQUIRED_VOLUME_FIELDS.items():
        for field in fields if kind in volume else ():
            if not volume[kind].get(field):
                yield FieldProblem(f"{path}.{kind}.{field}", "Required value")
    for where, target in _file_paths(volume, path):
        yield from _path_problems(target, where)


def _name_problems(name: str, path: str) -> Iterator[FieldProblem]:
    """Yield the problems of the name of a container or volume.

    The kubelet uses the name for a folder.
    """
    if not name:
        yield FieldProblem(path, "Required value")
        return
    for wrong in name_error_messages("label", name):
        yield FieldProblem(path, "Invalid value", json.dumps(name), wrong)


def _file_paths(volume: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the field and the value of each path at which the volume gets a file."""
    for kind in ("secret", "configMap"):
        for index, item in enumerate((volume.get(kind) or {}).get("items") or ()):
            yield f"{path}.{kind}.items[{index}].path", item.get("path") or ""
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        yield f"{path}.downwardAPI.path", item.get("path") or ""
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        yield from _file_paths(source, f"{path}.projected.sources[{index}]")
        if token := source.get("serviceAccountToken"):
            yield f"{path}.projected.path", token.get("path") or ""


def _path_problems(target: str, path: str) -> Iterator[FieldProblem]:
    """Yield a problem if a path is missing or leads out of its volume.

    A path outside of the volume could be any file of this machine.
    """
    wrong = "must not start with '..'" if target.startswith("..") else ""
    wrong = "must not contain '..'" if ".." in target.split("/") else wrong
    wrong = "must be a relative path" if target.startswith("/") else wrong
    if not target:
        yield FieldProblem(path, "Required value")
    elif wrong:
        yield FieldProblem(path, "Invalid value", json.dumps(target), wrong)


def _immutable_pod_fields(spec: Mapping[str, Any]) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _MUTABLE_POD_FIELDS}
    for key in _CONTAINER_LISTS:
        fixed[key] = [{**container, "image": ""} for container in fixed.get(key) or ()]
    return fixed


def _validate_claim(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
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
            yield FieldProblem("spec", "Forbidden", detail=_CLAIM_IMMUTABLE_TEXT)


def _validate_job(new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    spec = new.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    for field in _COUNTS:
        if (count := spec.get(field, 0)) < 0:
            yield FieldProblem(f"spec.{field}", "Invalid value", str(count), "must be greater than or equal to 0")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for key, value in labels.items():
        for wrong in (*label_key_problems(key), *label_value_problems(value)):
            yield FieldProblem("spec.template.labels", "Invalid value", json.dumps(key), wrong)
    yield from _pod_spec_problems(template, "spec.template.spec")
    policy = template.get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        field, detail = "spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'
        if policy:
            yield FieldProblem(field, "Unsupported value", f'"{policy}"', 'supported values: "OnFailure", "Never"')
        else:
            yield FieldProblem(field, "Required value", detail=detail)


def _validate_role(new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    for index, rule in enumerate(new.get("rules") or ()):
        if not rule.get("verbs"):
            yield FieldProblem(
                f"rules[{index}].verbs", "Required value", detail="verbs must contain at least one value"
            )


def _validate_binding(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    reference = new.get("roleRef") or {}
    if not reference.get("name"):
        yield FieldProblem("roleRef.name", "Required value")
    if old is not None and reference != old.get("roleRef"):
        yield FieldProblem("roleRef", "Invalid value", detail="cannot change roleRef")


def _validate_config_map(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldProblem]:
    """Yield the problems of a ConfigMap, as ValidateConfigMap (pkg/apis/core/validation)."""
    texts, binary = new.get("data") or {}, new.get("binaryData") or {}
    size = sum(len(text.encode()) for text in texts.values()) + sum(
        len(base64.b64decode(text)) for text in binary.values()
    )
    if size > _MAX_CONFIG_MAP_BYTES:
        yield FieldProblem("[]", "Too long", detail=f"may not be more than {_MAX_CONFIG_MAP_BYTES} bytes")
    if old is None or not old.get("immutable"):
        return
    for name in ("immutable", "data", "binaryData"):
        if (new.get(name) or None) != (old.get(name) or None):
            yield FieldProblem(name, "Forbidden", detail="field is immutable when `immutable` is set")


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any] | None], Iterator[FieldProblem]]] = {
    "pods": _validate_pod,
    "configmaps": _validate_config_map,
    "persistentvolumeclaims": _validate_claim,
    "jobs": _validate_job,
    "roles": _validate_role,
    "clusterroles": _validate_role,
    "rolebindings": _validate_binding,
    "clusterrolebindings": _validate_binding,
}


def _string_fields(names: str) -> Schema:
    return object_of(**dict.fromkeys(names.split(), STRING))


METADATA = object_of(
    labels=LABELS,
    annotations=LABELS,
    finalizers=STRINGS,
    ownerReferences=array_of(
        object_of(**_string_fields("apiVersion kind name uid").properties, blockOwnerDeletion=BOOLEAN)
    ),
    **_string_fields("name generateName namespace uid resourceVersion").properties,
)
_AMOUNTS = Schema("map", items=QUANTITY)
_CONTAINERS = array_of(
    object_of(
        name=STRING,
        image=STRING,
        command=STRINGS,
        args=STRINGS,
        env=array_of(object_of(name=STRING, value=STRING, valueFrom=MAP)),
        resources=object_of(limits=_AMOUNTS, requests=_AMOUNTS),
        volumeMounts=array_of(_string_fields("name mountPath subPath")),
    )
)
_VOLUME = object_of(
    name=STRING,
    projected=object_of(sources=array_of(MAP)),
    **dict.fromkeys(("configMap", "downwardAPI", "emptyDir", "hostPath", "persistentVolumeClaim", "secret"), MAP),
)
_EXPRESSIONS = array_of(object_of(key=STRING, operator=STRING, values=STRINGS))
_TERMS = array_of(object_of(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS))
_NODE_AFFINITY = object_of(requiredDuringSchedulingIgnoredDuringExecution=object_of(nodeSelectorTerms=_TERMS))
_POD_SPEC = object_of(
    activeDeadlineSeconds=INT64,
    affinity=object_of(nodeAffinity=_NODE_AFFINITY),
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    nodeName=STRING,
    nodeSelector=LABELS,
    terminationGracePeriodSeconds=INT64,
    volumes=array_of(_VOLUME),
)
_RULES = array_of(object_of(verbs=STRINGS))
BUILTIN_SCHEMAS: Mapping[str, Schema] = {
    plural: object_of(metadata=METADATA, **properties)
    for plural, properties in {
        "": {},
        "pods": {"spec": _POD_SPEC},
        "jobs": {"spec": object_of(template=object_of(metadata=METADATA, spec=_POD_SPEC))},
        "persistentvolumeclaims": {"spec": object_of(accessModes=STRINGS, resources=object_of(requests=MAP))},
        "secrets": {"stringData": LABELS, "data": LABELS},
        "namespaces": {"spec": MAP},
        "roles": {"rules": _RULES},
        "clusterroles": {"rules": _RULES},
        "rolebindings": {"roleRef": MAP},
        "clusterrolebindings": {"roleRef": MAP},
    }.items()
}
"""Types of the fields that the API server itself reads, by plural; the empty key holds those of all other kinds."""

_ACCESS = {
    "resourceAttributes": _string_fields("namespace verb group version resource subresource name"),
    "nonResourceAttributes": _string_fields("path verb"),
}
REQUEST_BODY_SCHEMAS: Mapping[str, Schema] = {
    "DeleteOptions": object_of(
        preconditions=_string_fields("uid resourceVersion"),
        gracePeriodSeconds=INT64,
        propagationPolicy=STRING,
        orphanDependents=BOOLEAN,
        dryRun=STRINGS,
    ),
    "Binding": object_of(metadata=_string_fields("name"), target=_string_fields("kind name")),
    "TokenRequest": object_of(
        spec=object_of(
            expirationSeconds=INT64, audiences=STRINGS, boundObjectRef=_string_fields("kind apiVersion name uid")
        )
    ),
    "SelfSubjectReview": object_of(),
    "SelfSubjectRulesReview": object_of(spec=_string_fields("namespace")),
    "SelfSubjectAccessReview": object_of(spec=object_of(**_ACCESS)),
    "SubjectAccessReview": object_of(spec=object_of(user=STRING, groups=STRINGS, uid=STRING, **_ACCESS)),
    "TokenReview": object_of(spec=object_of(token=STRING, audiences=STRINGS)),
}
"""Types of request bodies that are not stored as objects, by kind."""

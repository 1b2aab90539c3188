"""Applies the runtimePatches of a TrainJob to the JobSet template of its runtime; pure.

A strategic merge patch as Go's struct tags define it for JobSetSpec and PodSpec: lists with a merge key are merged
item by item,
others replaced. An item the template does not have comes first. The replicated jobs keep the runtime's order
afterwards.
Source: k8s.io/apimachinery 0.36 `pkg/util/strategicpatch/patch.go`, k8s.io/api 0.36 `core/v1/types.go`,
Trainer 2.3 `pkg/runtime/core/trainingruntime.go` (mergeRuntimePatches).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainjob_local.objects import Json

__all__ = ["merged", "with_runtime_patches"]

_MERGE_KEYS: Mapping[str, str] = {
    "replicatedJobs": "name",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}


def with_runtime_patches(template: Json, patches: Sequence[Json]) -> Json:
    """Applies patches, in their order, to a JobSet template (`metadata`, `spec`); returns the new template."""
    spec: Json = deepcopy(dict(template.get("spec") or {}))
    order = {job["name"]: index for index, job in enumerate(spec.get("replicatedJobs") or [])}
    metadata = deepcopy(dict(template.get("metadata") or {}))
    for patch in patches:
        change = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for key in ("labels", "annotations"):
            added = (change.get("metadata") or {}).get(key)
            if added:
                metadata[key] = {**(metadata.get(key) or {}), **added}
        spec = merged(spec, change.get("spec") or {})
    # sorted() is stable and an unknown name counts as 0, as in the original.
    jobs = sorted(spec.get("replicatedJobs") or [], key=lambda job: order.get(job["name"], 0))
    return {"metadata": metadata, "spec": {**spec, "replicatedJobs": jobs}}


def merged(original: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Merges a patch into an object; null takes a field away."""
    result = dict(original)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            known = result.get(key)
            result[key] = merged(known if isinstance(known, Mapping) else {}, value)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merged_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = deepcopy(value)
    return result


def _merged_list(original: Sequence[Json], patch: Sequence[Json], key: str) -> list[Json]:
    changes = {item.get(key): item for item in patch}
    known = {item.get(key) for item in original}
    new = [merged({}, item) for item in patch if item.get(key) not in known]
    return [*new, *(merged(item, changes[item.get(key)]) if item.get(key) in changes else item for item in original)]

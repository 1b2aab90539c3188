"""The runtimePatches of a TrainJob, applied to the JobSet template of its runtime; pure.

The patch is a strategic merge patch, as Go's struct tags define it for JobSetSpec and PodSpec: lists with a merge key
are merged item by item, other lists are replaced. An item that the template does not have is put first. Afterwards the
replicated jobs have the runtime's order again.

Source: k8s.io/apimachinery 0.36 `pkg/util/strategicpatch/patch.go`, k8s.io/api 0.36 `core/v1/types.go`, Trainer 2.3
`pkg/runtime/core/trainingruntime.go` (mergeRuntimePatches).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainjob_local.objects import Json

__all__ = ["apply_runtime_patches", "strategic_merge"]

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


def apply_runtime_patches(template: Json, patches: Sequence[Json]) -> Json:
    """Return a JobSet template (`metadata`, `spec`) with the patches applied in their order."""
    spec: Json = deepcopy(dict(template.get("spec") or {}))
    order = {job["name"]: index for index, job in enumerate(spec.get("replicatedJobs") or [])}
    metadata = deepcopy(dict(template.get("metadata") or {}))
    for patch in patches:
        change = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for key in ("labels", "annotations"):
            added = (change.get("metadata") or {}).get(key)
            if added:
                metadata[key] = {**(metadata.get(key) or {}), **added}
        spec = strategic_merge(spec, change.get("spec") or {})
    # sorted() is stable and an unknown name counts as 0, as in Trainer 2.3.
    jobs = sorted(spec.get("replicatedJobs") or [], key=lambda job: order.get(job["name"], 0))
    return {"metadata": metadata, "spec": {**spec, "replicatedJobs": jobs}}


def strategic_merge(original: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Return an object with a patch merged into it; null in the patch removes the field."""
    result = dict(original)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            known = result.get(key)
            result[key] = strategic_merge(known if isinstance(known, Mapping) else {}, value)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merge_lists(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = deepcopy(value)
    return result


def _merge_lists(original: Sequence[Json], patch: Sequence[Json], key: str) -> list[Json]:
    changes = {item.get(key): item for item in patch}
    known = {item.get(key) for item in original}
    new = [strategic_merge({}, item) for item in patch if item.get(key) not in known]
    return [
        *new,
        *(strategic_merge(item, changes[item.get(key)]) if item.get(key) in changes else item for item in original),
    ]

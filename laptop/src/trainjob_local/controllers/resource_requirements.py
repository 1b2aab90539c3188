"""Resource requirements of the trainer container; pure functions.

Source: Trainer 2.3 `pkg/runtime/runtime.go` (GetNumGPUPerNode), `pkg/runtime/framework/plugins/torch/torch.go`
(getNumCPUPerNode), `pkg/util/trainingruntime` (MergeResourceRequirements).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_local.objects import Json
from trainjob_local.quantity import canonicalize, round_up

__all__ = ["canonical_requirements", "cpu_count", "gpu_count", "merge_requirements"]


def gpu_count(resources: Mapping[str, Any]) -> int:
    """Return the number of GPUs; 0 if there are none.

    The first resource with "gpu" in its name counts, in the requests and otherwise in the limits.
    """
    requested = _first_gpu_count(resources.get("requests") or {})
    return requested or _first_gpu_count(resources.get("limits") or {})


def cpu_count(resources: Mapping[str, Any]) -> int:
    """Return the number of CPUs, rounded up; 0 if there are none.

    The request counts, or the limit if there is no request.
    """
    requested = round_up((resources.get("requests") or {}).get("cpu", 0))
    return requested or round_up((resources.get("limits") or {}).get("cpu", 0))


def merge_requirements(base: Mapping[str, Any], override: Mapping[str, Any]) -> Json:
    """Merge a TrainJob's `resourcesPerNode` into a runtime's resources, entry by entry."""
    kinds = ("limits", "requests")
    merged = {kind: {**(base.get(kind) or {}), **(override.get(kind) or {})} for kind in kinds}
    return canonical_requirements({kind: entries for kind, entries in merged.items() if entries})


def canonical_requirements(resources: Mapping[str, Any]) -> Json:
    """Return requirements with quantities of limits and requests as Kubernetes stores them."""
    kinds = ("limits", "requests")
    return {
        key: {name: canonicalize(amount) for name, amount in value.items()} if key in kinds and value else value
        for key, value in resources.items()
    }


def _first_gpu_count(entries: Mapping[str, Any]) -> int:
    return next((round_up(value) for name, value in entries.items() if "gpu" in name.lower()), 0)

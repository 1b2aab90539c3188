"""Patches of objects: their media types, and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["PatchKind", "merge_patch"]


class PatchKind(str, Enum):
    """The media type of a patch; a strategic merge patch is applied as a merge patch: its lists replace lists."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch: objects are merged, null removes a key, anything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged

"""Metadata of an export as flat names with plain values.

They become the registry's custom properties and the rows of the model card. Source: kubeflow/model-registry
api/openapi/model-registry.yaml, v1alpha3, MetadataValue.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["flatten", "to_properties"]

_INT = re.compile(r"-?([1-9][0-9]{0,8}|0)")  # MetadataIntValue; larger numbers are sent as text


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """Return values by dotted names, such as `metrics.loss`.

    Lists become JSON. Values that are None or empty are left out.
    """
    found: dict[str, str | int | float | bool] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found |= flatten(value, f"{path}.")
        elif isinstance(value, list | tuple):
            found |= {path: json.dumps(value)} if value else {}
        elif value is not None and value != "":
            found[path] = value
    return found


def to_properties(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values as a registry's custom properties."""
    return {name: _to_metadata_value(value) for name, value in flatten(values).items()}


def _to_metadata_value(value: str | int | float | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"metadataType": "MetadataBoolValue", "bool_value": value}
    if isinstance(value, int) and _INT.fullmatch(str(value)):
        return {"metadataType": "MetadataIntValue", "int_value": str(value)}
    if isinstance(value, float) and math.isfinite(value):
        return {"metadataType": "MetadataDoubleValue", "double_value": value}
    return {"metadataType": "MetadataStringValue", "string_value": str(value)}

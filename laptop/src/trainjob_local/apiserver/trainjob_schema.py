"""The schema of a TrainJob in Trainer 2.3, made from its CustomResourceDefinition.

The CRD's CEL rules are Python functions here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.trainjob_schema import load_trainjob_schema
from trainjob_local.apiserver.schema import Rule, Schema, object_of

__all__ = ["TRAINJOB"]

_IMMUTABLE = "self == oldSelf"
_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_URI = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
_RULES: Mapping[str, Callable[[Any], bool]] = {
    f"self.metadata.name.matches('{_NAME}')": lambda job: re.search(_NAME, job["metadata"].get("name", "")) is not None,
    "size(self.metadata.name) <= 63": lambda job: len(job["metadata"].get("name", "")) <= 63,
    f"self == '' || self.matches('{_URI}')": lambda uri: uri == "" or re.match(_URI, uri) is not None,
    f"self in ['{_MANAGERS[0]}', '{_MANAGERS[1]}']": lambda manager: manager in _MANAGERS,
    "has(self.lastUpdatedTime)": lambda status: "lastUpdatedTime" in status,
}
_METADATA_NAMES = (
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)


def _convert(schema: Mapping[str, Any]) -> Schema:
    rules = [(rule["rule"], rule["message"]) for rule in schema.get("x-kubernetes-validations", ())]
    values = schema.get("items") or schema.get("additionalProperties")
    return Schema(
        _find_type(schema),
        schema.get("format", ""),
        properties={name: _convert(inner) for name, inner in schema.get("properties", {}).items()},
        required=tuple(schema.get("required", ())),
        items=_convert(values) if values else None,
        keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        minimum=schema.get("minimum"),
        maximum=schema.get("maximum"),
        min_length=schema.get("minLength", 0),
        max_length=schema.get("maxLength"),
        pattern=schema.get("pattern", ""),
        max_items=schema.get("maxItems"),
        enum=tuple(schema.get("enum", ())),
        default=schema.get("default"),
        immutable=any(cel == _IMMUTABLE for cel, _ in rules),
        rules=tuple(Rule(cel, message, _RULES[cel]) for cel, message in rules if cel != _IMMUTABLE),
    )


def _find_type(schema: Mapping[str, Any]) -> str:
    if "x-kubernetes-int-or-string" in schema:  # with the pattern of a quantity, in all places
        return "quantity"
    kind: str = schema["type"]
    return "map" if kind == "object" and "properties" not in schema else kind


_CONVERTED = _convert(load_trainjob_schema())
_METADATA = object_of(**dict.fromkeys(_METADATA_NAMES.split(), Schema("any")))
TRAINJOB = Schema("object", properties={**_CONVERTED.properties, "metadata": _METADATA}, rules=_CONVERTED.rules)
"""Schema of a whole TrainJob, with metadata and status."""

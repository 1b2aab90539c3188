"""Write the schema of a TrainJob, from the manifests that the Trainer ships.

    python tools/apiserver/trainjob_schema.py MANIFESTS

MANIFESTS is the file `trainer.json` in the folder of a built control plane; see tests/controlplane. The schema is that
of its CustomResourceDefinition without descriptions; `trainjob.trainjob_schema` reads it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CRD = "trainjobs.trainer.kubeflow.org"
PATH = Path("core/src/trainjob/trainjob_schema.json")
_SHORTEST_DEFINITION = 100  # characters

Schema = dict[str, Any]


def read_schema(manifests: Path) -> Schema:
    """Return the schema of a TrainJob in a Trainer's manifests, without descriptions."""
    (crd,) = (each for each in json.loads(manifests.read_text()) if each["metadata"]["name"] == CRD)
    (version,) = crd["spec"]["versions"]
    return _strip_descriptions(version["schema"]["openAPIV3Schema"])


def _strip_descriptions(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    stripped = {key: _strip_descriptions(value) for key, value in schema.items() if key != "description"}
    if isinstance(schema.get("properties"), dict):
        fields = schema["properties"].items()
        stripped["properties"] = {name: _strip_descriptions(field) for name, field in fields}
    return stripped


def share_repeated_parts(schema: Schema) -> dict[str, Schema]:
    """Return the schema as `TrainJob`, and repeated parts of it by names of their own.

    A reference, `{"$ref": NAME}`, is in place of such a part.
    """
    counts = Counter(_to_key(part) for _, part in _iterate_parts("TrainJob", schema))
    names: dict[str, str] = {}
    for name, part in _iterate_parts("TrainJob", schema):
        key = _to_key(part)
        if counts[key] > 1 and len(key) >= _SHORTEST_DEFINITION and key not in names:
            taken = sum(each.rstrip("0123456789") == name for each in names.values())
            names[key] = f"{name}{taken + 1}" if taken else name
    found = {name: _refer(json.loads(key), names, is_root=True) for key, name in names.items()}
    found["TrainJob"] = _refer(schema, names, is_root=True)
    used = json.dumps([*found.values()])
    return {name: part for name, part in found.items() if name == "TrainJob" or f'"$ref": "{name}"' in used}


def _iterate_parts(name: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield name, schema
    for field, inner in schema.get("properties", {}).items():
        yield from _iterate_parts(field, inner)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _iterate_parts(name, schema[keyword])


def _to_key(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


def _refer(schema: Schema, names: Mapping[str, str], *, is_root: bool = False) -> Schema:
    if not is_root and (name := names.get(_to_key(schema))):
        return {"$ref": name}
    changed = dict(schema)
    if "properties" in schema:
        changed["properties"] = {name: _refer(field, names) for name, field in schema["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            changed[keyword] = _refer(schema[keyword], names)
    return changed


if __name__ == "__main__":
    parts = share_repeated_parts(read_schema(Path(sys.argv[1])))
    lines = [f"{json.dumps(name)}: {json.dumps(parts[name], sort_keys=True)}" for name in sorted(parts)]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")

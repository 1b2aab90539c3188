"""Schema of a TrainJob in Trainer 2.3.

`tools/apiserver/trainjob_schema.py` writes it from the CustomResourceDefinition.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


@functools.cache
def load_trainjob_schema() -> Mapping[str, Any]:
    """Return the OpenAPI schema of a TrainJob, without descriptions."""
    definitions = json.loads(resources.files("trainjob").joinpath("trainjob_schema.json").read_text("utf-8"))

    def resolve(schema: Any) -> Any:
        if isinstance(schema, list):
            return [resolve(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return resolve(definitions[schema["$ref"]]) if "$ref" in schema else {k: resolve(v) for k, v in schema.items()}

    resolved: Mapping[str, Any] = resolve(definitions["TrainJob"])
    return resolved


def find_schema(place: str) -> Mapping[str, Any]:
    """Return the schema at a path in a TrainJob; `[]` means any item of a list."""
    schema = load_trainjob_schema()
    for name in place.replace("[]", ".[]").split("."):
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema

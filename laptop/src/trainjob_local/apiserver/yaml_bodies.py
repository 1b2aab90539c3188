"""Parser for bodies in YAML."""

from __future__ import annotations

import json
from typing import Any

import yaml

__all__ = ["parse_yaml_body"]


class _PlainLoader(yaml.SafeLoader):
    """A loader of JSON values, in which times stay texts.

    Aliases are refused, because a few of them can fill the memory.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_yaml_body(body: bytes) -> Any:
    """Return the JSON value of a YAML document.

    Raises:
        ValueError: the body is not one document of YAML with values that JSON has.
    """
    try:
        value = yaml.load(body, _PlainLoader)  # noqa: S506 - made of the safe loader
        return json.loads(json.dumps(value, allow_nan=False))
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error

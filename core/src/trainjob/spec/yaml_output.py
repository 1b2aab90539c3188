"""Output of objects as YAML that kubectl reads with the same values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import yaml

from trainjob.spec.yaml_scalars import resolve_scalar

__all__ = ["dump_yaml"]


def dump_yaml(documents: Sequence[Any], *, width: int = sys.maxsize, allow_unicode: bool = False) -> str:
    """Return values as documents of YAML; text of several lines is written as a block.

    Args:
        documents: values of JSON.
        width: number of columns after which long texts are wrapped.
        allow_unicode: whether characters outside of ASCII stay as they are.
    """
    dumped: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=allow_unicode)
    return dumped


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes each text that kubectl reads as another value without quotes.

    PyYAML 6.0 quotes only texts that PyYAML itself reads as another value. `1e-4`, `y` and `0o644` are not among them.
    """

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return the node of a text."""
        style = "|" if "\n" in text else "'" if resolve_scalar(text, None, plain=True) != text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)

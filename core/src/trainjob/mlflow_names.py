"""Names that MLflow accepts for metrics, parameters and tags, and the tags of this project."""

from __future__ import annotations

import re

__all__ = ["TAG_PREFIX", "to_mlflow_name"]

TAG_PREFIX = "trainjob."
"""Start of the names of all tags that this project sets."""
# mlflow 3.17, mlflow/utils/validation.py
_NO_NAME_CHARACTER = re.compile(r"[^\w./ :-]")
_MAX_LENGTH = 250


def to_mlflow_name(text: str) -> str:
    """Return a valid name of a metric, parameter or tag: a normal relative path."""
    parts = _NO_NAME_CHARACTER.sub("_", text)[:_MAX_LENGTH].split("/")
    name = "/".join(part for part in parts if part not in ("", ".", ".."))
    return name.replace("..", "_.", 1) if name.startswith("..") else name or "_"

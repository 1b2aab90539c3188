"""Fields of the base model's card that hold for a model that was trained from it: its license and languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError
from trainjob.programs.export.workspace import Workspace

__all__ = ["read_inherited_fields"]

# The fields of the hub's front matter (huggingface_hub 2.4, repocard_data.py, ModelCardData).
_INHERITED = ("license", "license_name", "license_link", "language", "pipeline_tag")
_FRONT_MATTER = re.compile(r"\s*---[ \t]*\r?\n(.*?)\n---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def read_inherited_fields(model: Path) -> Mapping[str, Any]:
    """Return the inherited fields of the card in the folder of a base model.

    The result is empty if the folder has no card, or one that cannot be read.
    """
    card = model / "README.md"
    try:
        with Workspace.enclosing(model, model).find(card).open() as file:
            text = file.read().decode()
    except (ExportError, OSError, ValueError):
        return {}
    import yaml  # huggingface_hub depends on it

    try:
        fields = yaml.safe_load(matter[1]) if (matter := _FRONT_MATTER.match(text)) else None
    except (yaml.YAMLError, RecursionError):
        return {}
    texts = {name: _to_text(fields.get(name)) for name in _INHERITED} if isinstance(fields, dict) else {}
    return {name: text for name, text in texts.items() if text}


def _to_text(value: Any) -> str | list[str]:
    """Return a value of YAML as the hub expects it: a text, or a list of texts."""
    if isinstance(value, list):
        return [text for each in value if not isinstance(each, list) and isinstance(text := _to_text(each), str)]
    return "" if value is None or isinstance(value, dict) else str(value)

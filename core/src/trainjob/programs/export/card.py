"""The model card: `README.md` of an export, with the hub's front matter.

Source: huggingface_hub 1.27 `repocard_data.py`, ModelCardData: `base_model`, `datasets`, `library_name`, `tags`. The
front matter is YAML. Each value is written as JSON, which is also YAML, so that no value can end the front matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.layout import ExportFile
from trainjob.programs.export.properties import flatten

__all__ = ["CARD_FILE", "model_card", "with_card"]

CARD_FILE = "README.md"
_HUB_NAME = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:/.*)?")
_LIBRARIES = {"model": "transformers", "adapter": "peft"}


def with_card(
    files: Sequence[ExportFile],
    checkpoint: Checkpoint,
    metrics: Mapping[str, Any],
    metadata: Mapping[str, Any],
    inherited: Mapping[str, Any],
) -> tuple[ExportFile, ...]:
    """Return the files of an export, with a new model card in place of the base model's card.

    The base model's card does not describe the fine-tuned model. Only its `inherited` fields hold for both.
    """
    card = ExportFile(CARD_FILE, content=model_card(checkpoint, metrics, metadata, inherited).encode())
    return tuple(sorted((*(file for file in files if file.path != CARD_FILE), card), key=lambda file: file.path))


def model_card(
    checkpoint: Checkpoint,
    metrics: Mapping[str, Any],
    metadata: Mapping[str, Any],
    inherited: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the text of a model card; equal arguments give an equal text.

    Args:
        checkpoint: the exported checkpoint.
        metrics: the training's last metrics.
        metadata: the metadata of the manifest; `base_model` and `dataset` become links on the hub if they are `hf://`
            addresses.
        inherited: fields of the base model's front matter that hold for this model, too.
    """
    base, dataset = (_to_hub_name(metadata.get(name)) for name in ("base_model", "dataset"))
    front = {
        **inherited,
        "library_name": checkpoint.library or _LIBRARIES[checkpoint.kind],
        "base_model": base,
        "datasets": [dataset] if dataset else None,
        "tags": [checkpoint.framework, *filter(None, [checkpoint.method]), "trainjob"],
    }
    known = {name: value for name, value in metadata.items() if name != "parameters"}
    made = {"checkpoint": checkpoint.description, "dtype": checkpoint.dtype, **known}
    tables = (
        _table("Training metrics", metrics, "The last values that the training logged."),
        _table("Parameters", _mapping(metadata.get("parameters")), "The configuration of the training."),
        _table("Origin", made, "`manifest.json` beside this file names every file with its SHA-256."),
    )
    title = f"Fine-tuned from {base}" if base else "Fine-tuned model"
    matter = [f"{name}: {json.dumps(value)}" for name, value in front.items() if value]
    return "\n".join(["---", *matter, "---", "", f"# {title}", *(line for table in tables for line in table), ""])


def _to_hub_name(address: Any) -> str:
    match = _HUB_NAME.fullmatch(address) if isinstance(address, str) else None
    return match[1] if match else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {"given": value}


def _table(title: str, values: Mapping[str, Any], description: str) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in flatten(values).items()]
    return ["", f"## {title}", "", description, "", "| | |", "|---|---|", *rows] if rows else []


def _cell(value: Any) -> str:
    """Return a text for a cell of a Markdown table: on one line, without markup."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", " ".join(str(value).split()))

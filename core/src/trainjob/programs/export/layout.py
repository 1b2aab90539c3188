"""Plan of the exported folder: its files, their names and their changes.

The result loads cleanly with transformers 5, and as the model of a next training. A single shard therefore is
`model.safetensors` without an index. Adapters beside merged weights are left out, because peft would apply them a
second time. `torch_dtype` is the data type that was saved; a framework may leave the base model's value. The folder has
the same form for each framework.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError
from trainjob.programs.export.checkpoint import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MODEL_WEIGHTS,
    WEIGHTS_INDEX,
    Checkpoint,
)
from trainjob.programs.export.companions import MANIFEST, PENDING_MANIFEST, TOKENIZER_FILES, find_companions
from trainjob.programs.export.loaders import find_missing
from trainjob.programs.export.workspace import SourceFile, Workspace
from trainjob.programs.fetch.names import check_conflicts, check_names

__all__ = ["MANIFEST", "PENDING_MANIFEST", "ExportFile", "find_missing_files", "is_trained_on", "plan_files"]

# A repository on the Hugging Face hub, or its name alone.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class ExportFile:
    """One file of an export: either a copy of `source`, or `content`.

    Attributes:
        path: relative path in the destination, with `/`.
        source: the file to copy.
        content: the bytes, if the file is not a copy.
    """

    path: str
    source: SourceFile | None = None
    content: bytes = b""

    def get_size(self) -> int:
        """Return the size in bytes."""
        return self.source.get_size() if self.source else len(self.content)

    def read(self) -> bytes:
        """Return the content of a small file."""
        return b"".join(self.blocks(1 << 20))

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the file's bytes in blocks of at most `size` bytes."""
        if self.source is None:
            for start in range(0, len(self.content), size):
                yield self.content[start : start + size]
            return
        with self.source.open() as file:
            while block := file.read(size):
                yield block


def plan_files(
    checkpoint: Checkpoint, model: Path, base_model: str = "", output: Path | None = None
) -> tuple[ExportFile, ...]:
    """Return the files of a checkpoint's export, ordered by name.

    Args:
        checkpoint: the checkpoint to export.
        model: folder of the base model, for files that the framework does not copy. It may be missing.
        base_model: origin of the base model; an adapter's configuration names it, because peft loads the base model
            from there. Empty if it is not known.
        output: folder that the run wrote to; None for the checkpoint's folder. Only files in the workspace, the closest
            folder that contains this one and `model`, are exported.

    Raises:
        ExportError: a configuration is missing or unreadable, the name of a file breaks a rule, or a file is a link out
            of the workspace. Such a link could lead to a token, or to this step's credentials.
    """
    workspace = Workspace.enclosing(output or checkpoint.folder, model)
    files = find_companions(checkpoint, model)
    planned = (_adapter if checkpoint.kind == "adapter" else _model)(checkpoint, files, base_model, workspace)
    ordered = tuple(sorted(planned, key=lambda file: file.path))
    names, origin, advice = [file.path for file in ordered], "the model to export", "rename or remove the file"
    check_names(names, origin, ExportError, MANIFEST, PENDING_MANIFEST, hint=advice)
    check_conflicts(names, origin, ExportError, hint=advice)
    return ordered


def find_missing_files(checkpoint: Checkpoint, files: Sequence[ExportFile], model: Path) -> list[str]:
    """Return a sentence about each file that programs miss when they load the export.

    Args:
        checkpoint: the exported checkpoint; an adapter is loaded with its base model, and misses nothing.
        files: the files of the export.
        model: folder of the base model. It may be missing.
    """
    if checkpoint.kind == "adapter":
        return []
    config = next(file for file in files if file.path == "config.json")
    of_base = [path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()]
    of_base = list(filter(checkpoint.uses_base_file, of_base))
    return list(find_missing([file.path for file in files], of_base, json.loads(config.read())))


def is_trained_on(checkpoint: Checkpoint, model: Path) -> bool:
    """Return whether weights were trained on the model in a folder.

    An adapter of peft names the folder of its base model, which may be the export of an earlier training. Other weights
    name no folder, so the result is True.

    Raises:
        ExportError: the adapter's configuration is unreadable.
    """
    if checkpoint.kind != "adapter":
        return True
    path = checkpoint.folder / ADAPTER_CONFIG
    config = _json_object(path, path.read_bytes())
    folder = config.get("base_model_name_or_path")
    if not isinstance(folder, str) or not folder or _names_repository(config):
        return True
    return os.path.realpath(folder) == os.path.realpath(model)


def _model(checkpoint: Checkpoint, files: dict[str, Path], _: str, workspace: Workspace) -> Iterator[ExportFile]:
    if "config.json" not in files:
        raise ExportError(f"{checkpoint.folder} has no config.json, and the base model's folder has none either")
    for name, path in files.items():
        if name != "config.json":
            yield ExportFile(name, workspace.find(path))
    yield _with_dtype(workspace.find(files["config.json"]), checkpoint.dtype)
    if len(checkpoint.weights) == 1:
        yield ExportFile(MODEL_WEIGHTS, workspace.find(checkpoint.weights[0]))
        return
    yield from (ExportFile(path.name, workspace.find(path)) for path in checkpoint.weights)
    yield ExportFile(WEIGHTS_INDEX, workspace.find(checkpoint.folder / WEIGHTS_INDEX))


def _adapter(
    checkpoint: Checkpoint, files: dict[str, Path], base_model: str, workspace: Workspace
) -> Iterator[ExportFile]:
    config = _read_json(workspace.find(checkpoint.folder / ADAPTER_CONFIG))
    if not _names_repository(config):
        config["base_model_name_or_path"] = base_model.removeprefix("hf://") or None
    yield ExportFile(ADAPTER_CONFIG, content=_json_bytes(config))
    yield ExportFile(ADAPTER_WEIGHTS, workspace.find(checkpoint.weights[0]))
    for name in TOKENIZER_FILES & files.keys():
        yield ExportFile(name, workspace.find(files[name]))


def _names_repository(adapter_config: dict[str, Any]) -> bool:
    """Return whether an adapter's base model is a repository on the hub, not a folder."""
    name = adapter_config.get("base_model_name_or_path")
    return isinstance(name, str) and bool(_HUB_NAME.fullmatch(name))


def _with_dtype(source: SourceFile, dtype: str) -> ExportFile:
    config = _read_json(source)
    # transformers 5 writes `dtype`, and reads both.
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["torch_dtype"]
    if not dtype or all(config.get(key) == dtype for key in keys):
        return ExportFile("config.json", source)
    changed = _json_bytes({**config, **dict.fromkeys(keys, dtype)})
    return ExportFile("config.json", content=changed)


def _read_json(source: SourceFile) -> dict[str, Any]:
    with source.open() as file:
        return _json_object(source, file.read())


def _json_object(path: Path | SourceFile, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ExportError(
            f"{path} is not a JSON object", hint="the run was killed while it saved, or the base model is damaged"
        )
    return found


def _json_bytes(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

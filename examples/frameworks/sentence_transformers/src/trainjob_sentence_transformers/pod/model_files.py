"""Checks of a model's files, before torch is loaded.

A model of sentence-transformers has `modules.json`, which names a folder for each module. The transformer's is the
model's folder itself, or a subfolder such as `0_Transformer`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.checks import check_model, lacks_padding

__all__ = ["check_model_files", "list_module_folders"]

MODULES = "modules.json"
_OWN_MODULES = "sentence_transformers."
_NEED_CONFIG = ("Pooling", "Dense")


def check_model_files(model: Path) -> None:
    """Refuse a model that cannot be trained.

    Raises:
        InvalidSpec: the folder has no model, or one of other modules, or its tokenizer cannot pad texts.
    """
    transformer = model
    if (model / MODULES).is_file():
        kind = read_object(model / "config_sentence_transformers.json").get("model_type", "SentenceTransformer")
        if kind != "SentenceTransformer":
            raise _refuse(model, f"it is a {kind}: this framework trains a SentenceTransformer")
        transformer = _check_modules(model)
    elif model.is_dir():
        print(f"the model has no {MODULES}, so the library's usual pooling is added", flush=True)
    check_model(transformer, "model_path")
    if lacks_padding(transformer):
        rule = "its tokenizer has no pad_token and no eos_token: name one of its tokens in tokenizer_config.json"
        raise _refuse(transformer, rule)


def list_module_folders(model: Path) -> list[str]:
    """Return the subfolders of a saved model, as its `modules.json` names them."""
    return sorted({each["path"].split("/")[0] for each in _read_modules(model)} - {""})


def _check_modules(model: Path) -> Path:
    """Return the transformer's folder."""
    modules = _read_modules(model)
    own = [each["type"] for each in modules if not each["type"].startswith(_OWN_MODULES)]
    if own:
        raise _refuse(model, f"its module {own[0]} is code of the model itself, which is not run")
    if not modules or not modules[0]["type"].endswith(".Transformer"):
        first = modules[0]["type"] if modules else "nothing"
        raise _refuse(model, f"its first module is {first}: it must be a Transformer")
    for each in modules:
        needs_config = each["type"].rpartition(".")[2] in _NEED_CONFIG
        if needs_config and not (model / each["path"] / "config.json").is_file():
            raise _refuse(model, f"{each['path']}/config.json is missing: fetch the model again with all its files")
    return model / str(modules[0]["path"])


def _read_modules(model: Path) -> list[dict[str, str]]:
    """Return type and folder of each module.

    Raises:
        InvalidSpec: the file is not the list of a model's modules.
    """
    path = model / MODULES
    try:
        found: Any = json.loads(path.read_bytes())
        modules = [{"type": each["type"], "path": each["path"]} for each in found]
    except (ValueError, LookupError, TypeError):
        raise _refuse(path, "it is not a list of modules: fetch the model again") from None
    if not all(_is_name(text) for each in modules for text in each.values()):
        raise _refuse(path, "it is not a list of modules: fetch the model again")
    return modules


def _is_name(text: Any) -> bool:
    """Return whether a value is the name of a class or a folder, and no path out of the model."""
    return isinstance(text, str) and not text.startswith("/") and ".." not in text.split("/")


def _refuse(path: Path, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem("model_path", str(path), rule))

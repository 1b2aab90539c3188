"""Files that are exported with the weights: configuration, tokenizer, licence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.origin import list_record_files
from trainjob.programs.fetch.selection import is_weights

__all__ = ["MANIFEST", "PENDING_MANIFEST", "TOKENIZER_FILES", "find_companions"]

MANIFEST = "manifest.json"
PENDING_MANIFEST = "manifest.pending.json"
TOKENIZER_FILES = frozenset(
    [
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "merges.txt",
        "sentencepiece.bpe.model",
        "special_tokens_map.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    ]
)
_CHAT_TEMPLATES = "additional_chat_templates"  # folder (transformers 5.23, utils/hub.py)
# Files about the training that an output folder contains beside the model: our record, the state and the results of
# transformers' Trainer, logs and plots.
_ABOUT_THE_TRAINING = re.compile(
    r"trainjob_.*|trainer_state\.json|trainer_log\.jsonl|training_\w+\.png|\w*_results\.json"
)
_ARGUMENTS_OF_TRAINING = "training_args.bin"  # a pickle, which transformers' Trainer saves
# Files that transformers saves with every model. The base model's are not those of the result.
_SAVED_WITH_MODEL = frozenset(["config.json", "generation_config.json"])


def find_companions(checkpoint: Checkpoint, model: Path) -> dict[str, Path]:
    """Return the files that are exported with the weights of a checkpoint, by relative path.

    These are all but weights, adapters, hidden files, and the manifests of an earlier export. Folders that the
    framework names are exported with their weights.

    Args:
        checkpoint: the checkpoint.
        model: folder of the base model, for files that the framework does not copy. It may be missing.
    """
    if not checkpoint.has_base_files:
        return _find_saved_companions(checkpoint, _list_tree(model))
    return {**_list_tree(model), **_list_tree(checkpoint.folder)}


def _find_saved_companions(checkpoint: Checkpoint, of_model: dict[str, Path]) -> dict[str, Path]:
    """Return the files beside a saved model, and further files of the base model.

    The latter are those that transformers does not save, such as the licence and `original/tokenizer.model`. Subfolders
    of the output folder are checkpoints, logs and other runs, unless the framework names those of the model. These
    replace all subfolders of the base model, which may have other modules. The tokenizer's files come from one folder,
    because the run may have changed the tokenizer.
    """
    found = _list_saved(checkpoint.folder)
    if checkpoint.folders is not None:
        found |= _list_folders(checkpoint.folder, checkpoint.folders)
        of_model = {name: path for name, path in of_model.items() if checkpoint.uses_base_file(name)}
    if not TOKENIZER_FILES & found.keys():
        found |= {name: path for name, path in of_model.items() if name in TOKENIZER_FILES}
    others = of_model.keys() - TOKENIZER_FILES - _SAVED_WITH_MODEL
    return {**{name: of_model[name] for name in others}, **found}


def _list_saved(folder: Path) -> dict[str, Path]:
    paths = [*folder.glob("*"), *(folder / _CHAT_TEMPLATES).glob("*")]
    records = list_record_files()  # of earlier runs, also of other frameworks
    return {
        name: path
        for name, path in _select(folder, paths).items()
        if name not in records and not _ABOUT_THE_TRAINING.fullmatch(name)
    }


def _list_folders(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return all files in subfolders, except hidden ones."""
    paths = [path for name in names for path in (folder / name).rglob("*") if path.is_file()]
    found = {path.relative_to(folder): path for path in paths}
    return {name.as_posix(): path for name, path in found.items() if not _is_hidden(name)}


def _list_tree(folder: Path) -> dict[str, Path]:
    return _select(folder, folder.rglob("*"))


def _select(folder: Path, paths: Iterable[Path]) -> dict[str, Path]:
    found = {path.relative_to(folder): path for path in paths if path.is_file()}
    return {name.as_posix(): path for name, path in found.items() if not _is_excluded(name)}


def _is_excluded(path: Path) -> bool:
    return (
        _is_hidden(path)
        or path.name.startswith("adapter_")
        or path.name == _ARGUMENTS_OF_TRAINING
        or is_weights(path.as_posix())
        or path.as_posix() in {MANIFEST, PENDING_MANIFEST}
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)

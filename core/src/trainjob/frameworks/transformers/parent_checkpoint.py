"""Parent of a training: the checkpoint of another training from which it starts with its own hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.checkpoint_owner import KEPT_CHECKPOINTS, CheckpointOwner
from trainjob.frameworks.durable_files import find_damage, read_object

__all__ = [
    "COMPLETE_FILE",
    "check_loadable",
    "choose_parent",
    "describe_parent",
    "describe_start",
    "get_run",
    "get_step",
    "list_changes",
]

COMPLETE_FILE = "trainjob_complete"
"""File in a checkpoint, its mark, with its training and the sizes of all files."""
# Another value of these fields is another model, another form of its weights, or another optimizer. Their state cannot
# be loaded, or means nothing.
_FIXED = (
    *("framework", "model_path", "files of model", "config.method", "config.fsdp", "config.deepspeed"),
    *("config.arguments.optim", "config.arguments.resize_vocab"),
)
_PEFT = "config.peft_config"
_FREE_IN_PEFT = ("lora_alpha", "lora_dropout", "use_rslora", "merge")


def choose_parent(output: Path, owner: CheckpointOwner) -> Path:
    """Return the newest complete checkpoint of another training that a request names.

    The folder is only read. If the newest training of several has several checkpoints, the last step counts.

    Args:
        output: output folder of the new training.
        owner: the new training, with the conditions in `resume_from`.

    Raises:
        InvalidSpec: no complete checkpoint meets the conditions, or its state cannot be loaded.
    """
    wanted = owner.resume_from or {}
    folder = Path(wanted.get("folder") or output)
    found = {path: mark for path in _list_candidates(folder) if (mark := _read_complete(path, owner))}
    fits = [path for path, mark in found.items() if _fits(path, mark, wanted)]
    if not fits:
        shown = ", ".join(f"step {get_step(path)} of run {get_run(mark)} ({path})" for path, mark in found.items())
        exists = f"it has {shown}" if shown else "it has none of another training"
        kept = "a complete training keeps its checkpoints only with save_total_limit in arguments"
        rule = f"no complete checkpoint in {folder} meets these conditions; {exists}: choose one that exists; {kept}"
        raise InvalidSpec(Problem("resume_from", json.dumps(wanted, sort_keys=True), rule))
    newest = max(fits, key=lambda path: (path / COMPLETE_FILE).stat().st_mtime_ns)
    same = [path for path in fits if found[path].get("owner") == found[newest].get("owner")]
    parent = max(same, key=lambda path: (get_step(path), path == newest))
    check_loadable(parent, found[parent].get("fields"), owner.fields)
    return parent


def check_loadable(checkpoint: Path, before: Any, now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose state another training cannot load.

    Fields of functions are not compared, because the function itself decides what it loads.

    Args:
        checkpoint: the checkpoint, for the error.
        before: fields of the training that saved it.
        now: fields of the training that starts from it.

    Raises:
        InvalidSpec: the first field that differs and must be the same.
    """
    before = before if isinstance(before, dict) else {}
    if "function" in now and "function" in before:
        return
    for part, form in (("function", "function"), (_PEFT, "LoRA")):
        if _has(before, part) != _has(now, part):
            _refuse(checkpoint, part, form if _has(before, part) else f"no {form}", form if _has(now, part) else "none")
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name) and _is_fixed(name):
            _refuse(checkpoint, name, *(_show(fields.get(name)) for fields in (before, now)))


def describe_parent(checkpoint: Path, owner: CheckpointOwner) -> dict[str, Any]:
    """Return the record of a parent: folder, step, run, and the changed fields."""
    mark = read_object(checkpoint / COMPLETE_FILE)
    return {
        "run": get_run(mark),
        "step": get_step(checkpoint),
        "folder": str(checkpoint),
        "changed": list_changes(mark.get("fields"), owner.fields),
    }


def list_changes(before: Any, now: Mapping[str, Any]) -> list[str]:
    """Return the fields that differ, such as `config.learning_rate 0.0001 instead of 0.0002`."""
    before = before if isinstance(before, dict) else {}
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return [
        f"other {name}" if name.startswith("files of") else f"{name} {_show(now.get(name))} instead of {_show(old)}"
        for name in names
        if not name.startswith(("resume_from", "trainer.resume_from"))
        for old in [before.get(name)]
    ]


def describe_start(parent: Mapping[str, Any]) -> str:
    """Return the line of the log about a start from a parent."""
    changes = f", with {', '.join(parent['changed'])}" if parent["changed"] else ""
    return f"starts from step {parent['step']} of run {parent['run']} ({parent['folder']}){changes}"


def get_step(checkpoint: Path) -> int:
    """Return the number of steps done at a checkpoint, which its name has."""
    return int(checkpoint.name.rpartition("-")[2])


def get_run(mark: Mapping[str, Any]) -> str:
    """Return the run in a mark: its ID in the workflow engine, or else the digest of its key."""
    return str(mark.get("run_name") or mark.get("run") or "unknown")


def _list_candidates(folder: Path) -> Iterable[Path]:
    paths = (folder, *folder.glob("checkpoint-*"), *folder.glob(f"{KEPT_CHECKPOINTS}/*/checkpoint-*"))
    return [path for path in sorted(paths) if path.name.removeprefix("checkpoint-").isdecimal()]


def _read_complete(checkpoint: Path, owner: CheckpointOwner) -> dict[str, Any]:
    mark = read_object(checkpoint / COMPLETE_FILE)
    return {} if mark.get("owner") in (None, owner.digest) or find_damage(mark, checkpoint) else mark


def _fits(checkpoint: Path, mark: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    step, run = wanted.get("step"), wanted.get("run")
    return step in (None, get_step(checkpoint)) and run in (None, mark.get("run_name"))


def _has(fields: Mapping[str, Any], part: str) -> bool:
    return any(name == part or name.startswith(f"{part}.") for name in fields)


def _is_fixed(name: str) -> bool:
    if name.startswith(f"{_PEFT}."):
        return name.removeprefix(f"{_PEFT}.") not in _FREE_IN_PEFT
    return any(name == fixed or name.startswith(f"{fixed}.") for fixed in _FIXED)


def _show(value: Any) -> str:
    return "not given" if value is None else json.dumps(value)


def _refuse(checkpoint: Path, field: str, before: str, now: str) -> None:
    rule = (
        f"{checkpoint} was saved with {before}, and its state can be loaded only with that: undo the change, or "
        "leave out resume_from"
    )
    raise InvalidSpec(Problem(field, now, rule))

"""Space that a training needs in its workspace, compared with the free space before it starts."""

from __future__ import annotations

import shutil

from trainjob.errors import TOO_LITTLE_SPACE, StorageFull
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["check_space"]

_ADAM_STATES = 2  # numbers that AdamW keeps for each weight, in the weight's data type (torch 2.13, optim/adamw.py)


def check_space(run: TrainingRun, framework: str) -> None:
    """Refuse a training for which the workspace has too little space, and report a tight one.

    The estimate is from below: weights in the data type of the model's files, and an adapter of no size. A checkpoint
    of all weights also has the optimizer's state. One is needed at least, and one more than are kept during a save.

    Args:
        run: the request.
        framework: name of the framework, for the log.

    Raises:
        StorageFull: there is less space than one checkpoint and the trained model need.
    """
    model = sum(path.stat().st_size for path in run.model.glob("*.safetensors"))
    trained = model if not run.uses_lora or run.merge else 0
    checkpoint = 0 if run.uses_lora else model * (1 + (_ADAM_STATES if _uses_adam(run) else 0))
    if run.get_argument("save_strategy") == "no":
        checkpoint = 0
    usual = trained + checkpoint * (run.save_total_limit + 1)
    run.output.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(run.output).free
    parts = f"{_format(trained)} for the model, and {_format(checkpoint)} for each checkpoint"
    if free < trained + checkpoint:
        hint = "use a larger volume, LoRA, or an optimizer with less state; or delete files in the workspace"
        raise StorageFull(
            f"{TOO_LITTLE_SPACE}: the training needs at least {parts}, and {run.output} has {_format(free)}", hint=hint
        )
    if free < usual:
        print(f"{framework}: the training needs up to {_format(usual)} ({parts}); {_format(free)} are free", flush=True)


def _uses_adam(run: TrainingRun) -> bool:
    """Return whether the optimizer is AdamW with a full state, transformers' default."""
    name = run.get_argument("optim")
    return name is None or (str(name).startswith("adamw_torch") and not str(name).endswith(("bit", "bit_ao")))


def _format(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

"""Training with Unsloth in one process of torchrun.

Unsloth loads the model from the workspace, and a trainer of TRL gets the rows that the step names, and a callback that
reports progress and records complete checkpoints. Everything else is Unsloth's own.
"""

from __future__ import annotations

# Unsloth changes the libraries below, so it has to be imported before them.
from unsloth import FastLanguageModel

# isort: split
import os
from importlib import metadata
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import record

import trl
from trainjob.frameworks.fine_tuning.finishing import finish, record_training
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.fine_tuning.start import Start, agree_on_start
from trainjob.frameworks.transformers.callback import CheckpointCallback
from trainjob.frameworks.unsloth.pod.run_arguments import RunArguments, parse_run_arguments
from trainjob.frameworks.unsloth.pod.trainer_arguments import build_trainer_arguments

__all__ = ["main"]

_TRAINERS = {
    "sft": ("SFTConfig", "SFTTrainer"),
    "dpo": ("DPOConfig", "DPOTrainer"),
    "kto": ("KTOConfig", "KTOTrainer"),
}
"""Names of TRL's classes for each method. Unsloth replaces the classes in the package `trl`."""


@record  # type: ignore[untyped-decorator]  # torchrun's last lines then have this process's error
def main() -> None:
    """Run the training.

    Raises:
        InvalidSpec: the nodes share no workspace, or the image's TRL lacks an argument.
    """
    run = parse_run_arguments()
    description = {
        "framework": "unsloth",
        "framework_version": metadata.version("unsloth"),
        "parameters": run.parameters,
    }
    train(run, agree_on_start(run, description))


def train(run: RunArguments, start: Start) -> None:
    """Run the training, record the final model, and merge its adapter.

    Raises:
        InvalidSpec: the image's TRL lacks an argument.
        MergeError: the adapter cannot be merged.
    """
    rank = int(os.environ.get("RANK", "0"))
    if not start.is_trained:
        summary = _train(run, start)
        if rank == 0:
            record_training(run, start, "unsloth", summary)
    if rank == 0:
        finish(run, start, "unsloth")


def _train(run: RunArguments, start: Start) -> dict[str, Any]:
    """Run the trainer, and return its last step, epoch and metrics."""
    callback = CheckpointCallback(start.owner if run.run else "", start.copier)
    config_name, trainer_name = _TRAINERS[run.method]
    config_class = getattr(trl, config_name)
    config = config_class(**build_trainer_arguments(run, config_class, metadata.version("trl")))
    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name=str(run.model),
        use_exact_model_name=True,  # otherwise some names are replaced with those of Unsloth's copies on the Hub
        local_files_only=True,
        **run.model_arguments,
    )
    if run.lora_arguments is not None:
        model = FastLanguageModel.get_peft_model(model, **run.lora_arguments)
    rows = load_rows(run)
    trainer = getattr(trl, trainer_name)(
        model=model,
        args=config,
        train_dataset=rows["train"],
        eval_dataset=rows["test"] if run.eval_dataset else None,
        processing_class=tokenizer,
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=start.checkpoint or None)
    trainer.save_model(str(run.output))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return callback.summary()


if __name__ == "__main__":
    main()

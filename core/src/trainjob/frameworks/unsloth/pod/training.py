"""Training with Unsloth in one process of torchrun.

Unsloth loads the model from the workspace, and a trainer of TRL gets the rows that the step names, and a callback that
reports progress and records complete checkpoints. Everything else is Unsloth's own.
"""

from __future__ import annotations

# Unsloth changes the libraries below, so it has to be imported before them.
from unsloth import FastLanguageModel

# isort: split
import dataclasses
import os
from importlib import metadata
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import record

import trl
from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.finishing import finish
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.fine_tuning.start import Start, agree_on_start
from trainjob.frameworks.transformers.callback import CheckpointCallback
from trainjob.frameworks.unsloth.pod.run_arguments import RunArguments, parse_run_arguments

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
    """Run TRL's trainer on the model that Unsloth loads, then record the final model.

    Raises:
        InvalidSpec: the image's TRL lacks an argument.
    """
    callback = CheckpointCallback(start.owner if run.run else "")
    config_name, trainer_name = _TRAINERS[run.method]
    config = build_config(run, getattr(trl, config_name))
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
    if int(os.environ.get("RANK", "0")) == 0:
        finish(run, "unsloth", callback.summary())


def build_config(run: RunArguments, config_class: Any) -> Any:
    """Return TRL's configuration of the training.

    Unsloth accepts many versions of TRL, and drops an argument that the installed one lacks (unsloth 2026.10.9,
    models/rl_config_compat.py).

    Args:
        run: the request.
        config_class: TRL's class of the configuration.

    Raises:
        InvalidSpec: the class lacks an argument.
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    rule = f"TRL {metadata.version('trl')} of the image has no such argument: use an image with a newer TRL"
    if problems := [
        Problem(f"config.arguments.{name}", repr(value), rule)
        for name, value in run.arguments.items()
        if name not in known
    ]:
        raise InvalidSpec(problems)
    arguments = dict(run.arguments)
    if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        arguments.setdefault("report_to", ["kubeflow"])  # the Trainer's own progress (gate TrainJobStatus, Trainer 2.2)
    return config_class(output_dir=str(run.output), disable_tqdm=True, **arguments)


if __name__ == "__main__":
    main()

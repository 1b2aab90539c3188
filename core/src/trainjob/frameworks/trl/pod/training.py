"""Training with a script of TRL in one process of torchrun.

The script gets the rows that the step names instead of a dataset of the Hub, and a callback that reports progress and
records complete checkpoints. Everything else is TRL's own.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import datasets
import torch
import transformers
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from torch.distributed.elastic.multiprocessing.errors import record

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.finishing import finish, record_training
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.fine_tuning.start import Start, agree_on_start
from trainjob.frameworks.transformers.callback import CheckpointCallback
from trainjob.frameworks.trl.pod.lora_arguments import choose_lora_arguments
from trainjob.frameworks.trl.pod.model_arguments import choose_model_arguments
from trainjob.frameworks.trl.pod.program import reward_names
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments

__all__ = ["main"]


@record  # type: ignore[untyped-decorator]  # torchrun's last lines then have this process's error
def main() -> None:
    """Run the training.

    Raises:
        InvalidSpec: the nodes share no workspace, or the request needs a GPU.
    """
    run = parse_run_arguments()
    train(run, agree_on_start(run, describe(run)))


def train(run: RunArguments, start: Start) -> None:
    """Run TRL's script, record the final model, and merge its adapter.

    Raises:
        InvalidSpec: the request needs a GPU.
        MergeError: the adapter cannot be merged.
    """
    rank = int(os.environ.get("RANK", "0"))
    if not start.is_trained:
        callback = CheckpointCallback(start.owner if run.run else "", start.copier)
        transformers.trainer.DEFAULT_CALLBACKS.append(callback)
        script = importlib.import_module(f"trl.scripts.{run.method}")
        datasets.load_dataset = lambda *_, **__: load_rows(run)  # the scripts import the name when they need it
        parsed = script.make_parser().parse_args_and_config(build_script_arguments(run, start.checkpoint))
        script.main(*parsed)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
        if rank == 0:
            record_training(run, start, "trl", callback.summary())
    if rank == 0:
        finish(run, start, "trl")


def build_script_arguments(run: RunArguments, checkpoint: str) -> list[str]:
    """Return the arguments of TRL's script.

    Args:
        run: the request.
        checkpoint: folder to resume from; empty starts from the beginning.

    Raises:
        InvalidSpec: the request needs a GPU.
    """
    words = [
        *run.trl_arguments,
        f"--model_name_or_path={run.model}",
        f"--output_dir={run.output}",
        "--dataset_name=workspace",  # required by the script, and not read
        "--disable_tqdm=true",
    ]
    if run.teacher:
        words.append(f"--teacher_model_name_or_path={run.teacher}")
    if run.rewards:
        words += ["--reward_funcs", *reward_names(run.rewards)]
    words += _choose_arguments(run)
    if checkpoint:
        words.append(f"--resume_from_checkpoint={checkpoint}")
    if not torch.accelerator.is_available():
        _refuse_quantization(run)
        if not _has(words, "use_cpu"):
            words.append("--use_cpu=true")
    if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL") and not _has(words, "report_to"):
        words += ["--report_to", "kubeflow"]  # the Trainer's own progress (gate TrainJobStatus, Trainer 2.2)
    return words


def _choose_arguments(run: RunArguments) -> list[str]:
    config = read_object(run.model / "config.json")
    given = run.parameters
    chosen = list(choose_model_arguments(str(config.get("model_type")), run.method, given))
    if run.uses_lora:
        chosen += choose_lora_arguments(config, given, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING)
    if chosen and int(os.environ.get("RANK", "0")) == 0:
        print(f"trl: this model needs {' '.join(chosen)}", flush=True)
    return chosen


def describe(run: RunArguments) -> dict[str, Any]:
    """Return framework, version and parameters for the record of the run."""
    version, parameters = metadata.version("trl"), run.parameters
    return {"framework": "trl", "framework_version": version, "parameters": parameters}


def _refuse_quantization(run: RunArguments) -> None:
    for name in ("load_in_4bit", "load_in_8bit"):
        if f"--{name}=true" in run.trl_arguments:
            raise InvalidSpec(
                Problem(f"config.peft_config.{name}", "True", "it requires a GPU, and this node has none")
            )


def _has(words: Sequence[str], name: str) -> bool:
    return any(word == f"--{name}" or word.startswith(f"--{name}=") for word in words)


if __name__ == "__main__":
    main()

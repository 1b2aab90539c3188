"""Training with LLaMA-Factory in one process of torchrun.

LLaMA-Factory gets the rows that the step names instead of a dataset of the Hub, and a callback that reports progress
and records complete checkpoints. Everything else is LLaMA-Factory's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch
from llamafactory.data import loader
from llamafactory.data.converter import DatasetConverter, register_dataset_converter
from llamafactory.train.tuner import run_exp
from torch.distributed.elastic.multiprocessing.errors import record

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.finishing import finish, record_training
from trainjob.frameworks.fine_tuning.linear_layers import list_linear_layers
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.fine_tuning.start import Start, agree_on_start
from trainjob.frameworks.llamafactory.pod.conversations import convert_row
from trainjob.frameworks.llamafactory.pod.run_arguments import RunArguments, parse_run_arguments
from trainjob.frameworks.transformers.callback import CheckpointCallback

__all__ = ["main"]

_FORMAT = "trainjob"  # name of the format of our rows


@record  # type: ignore[untyped-decorator]  # torchrun's last lines then have this process's error
def main() -> None:
    """Run the training.

    Raises:
        InvalidSpec: the nodes share no workspace, or the request needs a GPU.
    """
    run = parse_run_arguments()
    description = {
        "framework": "llamafactory",
        "framework_version": metadata.version("llamafactory"),
        "parameters": run.arguments,
    }
    train(run, agree_on_start(run, description))


def train(run: RunArguments, start: Start) -> None:
    """Run LLaMA-Factory, record the final model, and merge its adapter.

    Raises:
        InvalidSpec: the request needs a GPU.
        MergeError: the adapter cannot be merged.
    """
    rank = int(os.environ.get("RANK", "0"))
    if not start.is_trained:
        callback = CheckpointCallback(start.owner if run.run else "", start.copier)
        register_dataset_converter(_FORMAT, _create_converter(run.method))
        loader.load_dataset = lambda path, **_: load_rows(run)[path]
        run_exp(build_arguments(run, start.checkpoint), [callback])
        if rank == 0:
            record_training(run, start, "llamafactory", callback.summary())
    if rank == 0:
        finish(run, start, "llamafactory")


def build_arguments(run: RunArguments, checkpoint: str) -> dict[str, Any]:
    """Return LLaMA-Factory's arguments.

    Args:
        run: the request.
        checkpoint: folder to resume from; empty starts from the beginning.

    Raises:
        InvalidSpec: the request needs a GPU.
    """
    # With these settings, load_dataset is called with the names of our splits (llamafactory 0.9.5, data/parser.py).
    entry = {"formatting": _FORMAT, "ranking": run.method == "dpo"}
    splits = {"dataset": "train", **({"eval_dataset": "test"} if run.eval_dataset else {})}
    return {
        **_defaults(run),
        **run.arguments,
        **_choose_layers(run),
        **splits,
        "dataset_dir": {split: {"hf_hub_url": split, **entry} for split in splits.values()},
        "stage": run.method,
        "do_train": True,
        "disable_tqdm": True,
        "model_name_or_path": str(run.model),
        "output_dir": str(run.output),
        # Otherwise it would resume from the last folder `checkpoint-N`, which may be incomplete or of another run
        # (llamafactory 0.9.5, hparams/parser.py).
        **({"resume_from_checkpoint": checkpoint} if checkpoint else {"overwrite_output_dir": True}),
    }


def _defaults(run: RunArguments) -> dict[str, Any]:
    """Return arguments that depend on this node, and that the request may override."""
    values: dict[str, Any] = {}
    if not torch.accelerator.is_available():
        _refuse_quantization(run)
        values["use_cpu"] = True
    if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        values["report_to"] = ["kubeflow"]  # the Trainer's own progress (gate TrainJobStatus, Trainer 2.2)
    return values


def _choose_layers(run: RunArguments) -> dict[str, str]:
    """Return the layers of LoRA if peft cannot adapt all linear ones."""
    if not run.uses_lora or run.arguments.get("lora_target", "all") != "all":
        return {}
    layers = list_linear_layers(read_object(run.model / "config.json"))
    return {"lora_target": ",".join(layers)} if layers else {}


def _refuse_quantization(run: RunArguments) -> None:
    if bits := run.arguments.get("quantization_bit"):
        rule = "it requires a GPU, and this node has none"
        raise InvalidSpec(Problem(f"config.peft_config.load_in_{bits}bit", "True", rule))


def _create_converter(method: str) -> type[DatasetConverter]:
    """Return the class that converts rows of the workspace for a method."""

    class RowConverter(DatasetConverter):  # type: ignore[misc]
        def __call__(self, example: Mapping[str, Any]) -> dict[str, Any]:
            return convert_row(example, method)

    return RowConverter


if __name__ == "__main__":
    main()

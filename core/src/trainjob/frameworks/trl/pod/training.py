"""Training with a script of TRL in one process of torchrun.

The script gets the rows that the step names instead of a dataset of the Hub, and a callback that reports progress and
records complete checkpoints. Everything else is TRL's own.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence

import datasets
import torch
import transformers
from torch.distributed.elastic.multiprocessing.errors import record

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.transformers.callback import CheckpointCallback
from trainjob.frameworks.trl.pod.merging import save_merged_model
from trainjob.frameworks.trl.pod.program import reward_names
from trainjob.frameworks.trl.pod.rows import load_rows
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments
from trainjob.frameworks.trl.pod.run_files import read_record, sync_files, write_record
from trainjob.frameworks.trl.pod.start import Start, agree_on_start

__all__ = ["main"]


@record  # type: ignore[untyped-decorator]  # torchrun's last lines then have this process's error
def main() -> None:
    """Run the training.

    Raises:
        InvalidSpec: the nodes share no workspace, or the request needs a GPU.
    """
    run = parse_run_arguments()
    train(run, agree_on_start(run))


def train(run: RunArguments, start: Start) -> None:
    """Run TRL's script, then record the final model.

    Raises:
        InvalidSpec: the request needs a GPU.
    """
    callback = CheckpointCallback(start.owner if run.run else "")
    transformers.trainer.DEFAULT_CALLBACKS.append(callback)
    script = importlib.import_module(f"trl.scripts.{run.method}")
    datasets.load_dataset = lambda *_, **__: load_rows(run)  # the scripts import the name when they need it
    parsed = script.make_parser().parse_args_and_config(build_script_arguments(run, start.checkpoint))
    script.main(*parsed)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if int(os.environ.get("RANK", "0")) == 0:
        finish(run, callback)


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
    if checkpoint:
        words.append(f"--resume_from_checkpoint={checkpoint}")
    if not torch.accelerator.is_available():
        _refuse_quantization(run)
        if not _has(words, "use_cpu"):
            words.append("--use_cpu=true")
    if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL") and not _has(words, "report_to"):
        words += ["--report_to", "kubeflow"]  # the Trainer's own progress (gate TrainJobStatus, Trainer 2.2)
    return words


def finish(run: RunArguments, callback: CheckpointCallback) -> None:
    """Save the merged model if there is one, and record that the run is complete."""
    has_adapter = (run.output / "adapter_config.json").is_file()
    if has_adapter and run.merge:
        save_merged_model(run.model, run.output, run.method)
    sync_files(run.output)
    record = {**read_record(run.output), "complete": True, "adapter": has_adapter, **callback.summary()}
    write_record(run.output, record)
    print(f"trl: the training is complete: {json.dumps(callback.summary())}", flush=True)


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

"""Training with sentence-transformers in one process of torchrun.

Its trainer is one of transformers. It gets the rows that the step names, and a callback that reports progress and
records complete checkpoints. Everything else is the library's own.
"""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerModelCardData,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses
from torch.distributed.elastic.multiprocessing.errors import record

from trainjob.frameworks.fine_tuning.finishing import record_training
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.fine_tuning.start import Start, agree_on_start
from trainjob.frameworks.transformers.callback import CheckpointCallback
from trainjob_sentence_transformers.pod.model_files import list_module_folders
from trainjob_sentence_transformers.pod.rows import choose_columns
from trainjob_sentence_transformers.pod.run_arguments import RunArguments, parse_run_arguments

__all__ = ["main"]


@record  # type: ignore[untyped-decorator]  # torchrun's last lines then have this process's error
def main() -> None:
    """Run the training.

    Raises:
        InvalidSpec: the nodes share no workspace.
    """
    run = parse_run_arguments()
    description = {
        "framework": "sentence_transformers",
        "framework_version": metadata.version("sentence-transformers"),
        "library": "sentence-transformers",
        "parameters": run.parameters,
    }
    train(run, agree_on_start(run, description))


def train(run: RunArguments, start: Start) -> None:
    """Run the trainer, and save and record the final model."""
    callback = CheckpointCallback(start.owner if run.run else "", start.copier)
    model = load_model(run)
    rows = load_rows(run)
    selected = {
        split: each.select_columns(choose_columns(run.loss["name"], each.column_names)) for split, each in rows.items()
    }
    trainer = SentenceTransformerTrainer(
        model=model,
        args=build_arguments(run),
        train_dataset=selected["train"],
        eval_dataset=selected.get("test"),
        loss=build_loss(run, model),
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=start.checkpoint or None)
    trainer.save_model(str(run.output))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if int(os.environ.get("RANK", "0")) == 0:
        summary = {**callback.summary(), "folders": list_module_folders(run.output)}
        record_training(run, start, "sentence_transformers", summary)


def load_model(run: RunArguments) -> SentenceTransformer:
    """Return the model of the workspace; without modules it gets the library's usual pooling."""
    # Otherwise the library looks up the model on the Hub, for its card.
    card = SentenceTransformerModelCardData(local_files_only=True, generate_widget_examples=False)
    model = SentenceTransformer(str(run.model), local_files_only=True, model_card_data=card)
    if run.max_length:
        model.max_seq_length = run.max_length
    return model


def build_loss(run: RunArguments, model: SentenceTransformer) -> torch.nn.Module:
    """Return the loss of the request."""
    loss = getattr(losses, run.loss["name"])(model, **run.loss["arguments"])
    dimensions = run.loss["dimensions"]
    return losses.MatryoshkaLoss(model, loss, dimensions) if dimensions else loss


def build_arguments(run: RunArguments) -> SentenceTransformerTrainingArguments:
    """Return the arguments of the trainer."""
    arguments: dict[str, Any] = {**run.arguments, "output_dir": str(run.output), "disable_tqdm": True}
    if not torch.accelerator.is_available():
        arguments["use_cpu"] = True
    # By default, the trainer reports to every tracker that the image contains; the step's tracking reads the log.
    is_watched = bool(os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"))  # gate TrainJobStatus, Trainer 2.2
    arguments["report_to"] = ["kubeflow"] if is_watched else []
    built = SentenceTransformerTrainingArguments(**arguments)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        # The library takes a single process of torchrun for one of several, and would leave out the rows of an
        # incomplete batch (sentence-transformers 6.2, base/training_args.py).
        built.dataloader_drop_last = bool(run.get_argument("dataloader_drop_last"))
    return built


if __name__ == "__main__":
    main()

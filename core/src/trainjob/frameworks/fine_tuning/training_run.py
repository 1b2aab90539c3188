"""The request of a training, as its program in the pod gets it."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.checkpoint_owner import KEPT
from trainjob.frameworks.durable_files import read_object

__all__ = ["TrainingRun", "add_options"]


@dataclass(frozen=True)
class TrainingRun:
    """The part of a request that all frameworks have.

    Attributes:
        run: owner of the checkpoints, as [trainjob.frameworks.checkpoint_owner][] reads it; empty disables resuming.
        model_name: the model's name in the request, for the record.
        model: folder of the model to train.
        dataset: folder or file with the rows.
        eval_dataset: folder or file with the rows for evaluation; None for no evaluation.
        output: folder for the checkpoints and the final model.
        columns: names of the dataset's columns by the method's names.
        merge: whether to save a LoRA training's merged model, too.
        keep_checkpoints: whether the checkpoints stay after the training is complete.
        method: name of the method, such as `sft`.
        checkpoint_uri: address to which checkpoints are copied; empty for no copies.
        copier: arguments of Python that run the program which copies them; empty for no copies.
    """

    run: str
    model_name: str
    model: Path
    dataset: Path
    eval_dataset: Path | None
    output: Path
    columns: dict[str, str]
    merge: bool
    keep_checkpoints: bool
    method: str
    checkpoint_uri: str
    copier: list[str]

    @property
    def uses_lora(self) -> bool:
        """Whether the training is with LoRA; each framework's request knows it."""
        raise NotImplementedError

    @property
    def trusts_remote_code(self) -> bool:
        """Whether code in the model's folder may run; each framework's request knows it."""
        raise NotImplementedError

    @property
    def resizes_vocabulary(self) -> bool:
        """Whether the training adds embeddings for further tokens of the tokenizer."""
        return False

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Folders and files that decide the weights."""
        return (self.model, self.dataset)

    def get_argument(self, name: str) -> Any:
        """Return an argument of transformers' Trainer; None if the request does not give it."""
        raise NotImplementedError

    @property
    def save_total_limit(self) -> int:
        """Number of checkpoints that are kept."""
        limit = self.get_argument("save_total_limit")
        return limit if isinstance(limit, int) else KEPT

    @property
    def length(self) -> list[Any]:
        """Steps and epochs that the request gives; a training with another length is not complete."""
        return [self.get_argument("max_steps"), self.get_argument("num_train_epochs")]

    def includes(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint is within the length of this training.

        It is not if the request had more steps or epochs when it was saved.
        """
        state = read_object(checkpoint / "trainer_state.json")  # transformers 5, trainer.py, TRAINER_STATE_NAME
        steps, epochs = self.length
        if isinstance(steps, int) and steps > 0:
            return int(state.get("global_step") or 0) <= steps
        return not isinstance(epochs, int | float) or float(state.get("epoch") or 0) <= epochs


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the fields of `TrainingRun`, except its method."""
    parser.add_argument("--run", default="", help="JSON object: the owner of the checkpoints")
    parser.add_argument("--model-name", default="", help="name of the model, for the record of the run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model to train")
    parser.add_argument("--dataset", type=Path, required=True, help="folder or file with the rows")
    parser.add_argument("--eval-dataset", type=Path, help="folder or file with the rows for evaluation")
    parser.add_argument("--output", type=Path, required=True, help="folder for checkpoints and the final model")
    parser.add_argument("--checkpoint-uri", default="", help="address to which checkpoints are copied")
    parser.add_argument("--copier", type=json.loads, default=[], help="JSON list: program that copies checkpoints")
    parser.add_argument("--columns", type=json.loads, default={}, help="JSON object: method's name -> dataset's column")
    parser.add_argument("--merge", action="store_true", help="save a LoRA training's merged model, too")
    parser.add_argument("--keep-checkpoints", action="store_true", help="keep the checkpoints after the training")

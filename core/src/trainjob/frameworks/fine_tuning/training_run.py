"""The request of a training, as its program in the pod gets it."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TrainingRun", "add_options"]


@dataclass(frozen=True)
class TrainingRun:
    """The part of a request that all frameworks have.

    Attributes:
        run: identifier of the run, the same in all its attempts; empty disables resuming.
        model_name: the model's name in the request, for the record.
        model: folder of the model to train.
        dataset: folder or file with the rows.
        eval_dataset: folder or file with the rows for evaluation; None for no evaluation.
        output: folder for the checkpoints and the final model.
        columns: names of the dataset's columns by the method's names.
        merge: whether to save a LoRA training's merged model, too.
        method: name of the method, such as `sft`.
    """

    run: str
    model_name: str
    model: Path
    dataset: Path
    eval_dataset: Path | None
    output: Path
    columns: dict[str, str]
    merge: bool
    method: str

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
        """Folders and files that the run reads."""
        return tuple(path for path in (self.model, self.dataset, self.eval_dataset) if path)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the fields of `TrainingRun`, except its method."""
    parser.add_argument("--run", default="", help="identifier of the run, the same text in all its attempts")
    parser.add_argument("--model-name", default="", help="name of the model, for the record of the run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model to train")
    parser.add_argument("--dataset", type=Path, required=True, help="folder or file with the rows")
    parser.add_argument("--eval-dataset", type=Path, help="folder or file with the rows for evaluation")
    parser.add_argument("--output", type=Path, required=True, help="folder for checkpoints and the final model")
    parser.add_argument("--columns", type=json.loads, default={}, help="JSON object: method's name -> dataset's column")
    parser.add_argument("--merge", action="store_true", help="save a LoRA training's merged model, too")

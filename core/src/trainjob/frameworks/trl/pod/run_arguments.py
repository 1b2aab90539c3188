"""Arguments of the program in the pod, which torchrun's processes get, too."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunArguments", "parse_run_arguments"]


@dataclass(frozen=True)
class RunArguments:
    """The request of a training.

    Attributes:
        run: identifier of the run, the same in all its attempts; empty disables resuming.
        model_name: the model's name in the request, for the record.
        model: folder of the model to train.
        dataset: folder or file with the rows.
        eval_dataset: folder or file with the rows for evaluation; None for no evaluation.
        output: folder for the checkpoints and the final model.
        teacher: folder of the larger model; None unless the method is distillation.
        columns: names of the dataset's columns by TRL's names.
        trl_version: version of TRL that the request was checked for.
        index_url: package index to install TRL from; empty means pip's default.
        wheels: folder with wheels to install TRL from without an index; None for no folder.
        merge: whether to save a LoRA training's merged model, too.
        rewards: reward functions, each a name or `NAME:SOURCE` with the source in base64.
        method: name of TRL's script.
        trl_arguments: arguments of TRL's script, without the paths.
    """

    run: str
    model_name: str
    model: Path
    dataset: Path
    eval_dataset: Path | None
    output: Path
    teacher: Path | None
    columns: dict[str, str]
    trl_version: str
    index_url: str
    wheels: Path | None
    merge: bool
    rewards: tuple[str, ...]
    method: str
    trl_arguments: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Folders and files that the run reads."""
        return tuple(path for path in (self.model, self.dataset, self.eval_dataset, self.teacher) if path)


def parse_run_arguments(arguments: Sequence[str] | None = None) -> RunArguments:
    """Return the request from the program's arguments, by default those of this process."""
    parser = argparse.ArgumentParser(description="Train with a script of TRL, or resume the training.")
    parser.add_argument("--run", default="", help="identifier of the run, the same text in all its attempts")
    parser.add_argument("--model-name", default="", help="name of the model, for the record of the run")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model to train")
    parser.add_argument("--dataset", type=Path, required=True, help="folder or file with the rows")
    parser.add_argument("--eval-dataset", type=Path, help="folder or file with the rows for evaluation")
    parser.add_argument("--output", type=Path, required=True, help="folder for checkpoints and the final model")
    parser.add_argument("--teacher", type=Path, help="folder of the larger model for distillation")
    parser.add_argument("--columns", type=json.loads, default={}, help="JSON object: TRL's name -> dataset's column")
    parser.add_argument("--trl-version", required=True, help="version of TRL that the arguments were checked for")
    parser.add_argument("--index-url", default="", help="package index to install TRL from if the image lacks it")
    parser.add_argument("--wheels", type=Path, help="folder with wheels to install TRL from without an index")
    parser.add_argument("--merge", action="store_true", help="save a LoRA training's merged model, too")
    parser.add_argument("--reward", action="append", default=[], dest="rewards", help="NAME or NAME:SOURCE in base64")
    parser.add_argument("method", help="name of TRL's script, such as sft")
    parser.add_argument("trl_arguments", nargs=argparse.REMAINDER, help="arguments of TRL's script")
    given = vars(parser.parse_args(arguments))
    return RunArguments(**{**given, "rewards": tuple(given["rewards"]), "trl_arguments": tuple(given["trl_arguments"])})

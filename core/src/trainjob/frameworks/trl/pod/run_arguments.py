"""Arguments of the program in the pod, which torchrun's processes get, too."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.fine_tuning.training_run import TrainingRun, add_options

__all__ = ["RunArguments", "parse_run_arguments"]


@dataclass(frozen=True)
class RunArguments(TrainingRun):
    """The request of a training with TRL.

    Attributes:
        teacher: folder of the larger model; None unless the method is distillation.
        trl_version: version of TRL that the request was checked for.
        index_url: package index to install TRL from; empty means pip's default.
        wheels: folder with wheels to install TRL from without an index; None for no folder.
        rewards: reward functions, each a name or `NAME:SOURCE` with the source in base64.
        trl_arguments: arguments of TRL's script, without the paths.
    """

    teacher: Path | None
    trl_version: str
    index_url: str
    wheels: Path | None
    rewards: tuple[str, ...]
    trl_arguments: tuple[str, ...]

    @property
    def uses_lora(self) -> bool:
        """Whether the training is with LoRA."""
        return "--use_peft=true" in self.trl_arguments

    @property
    def parameters(self) -> dict[str, Any]:
        """TRL's arguments by name."""
        return _parse_parameters(self.trl_arguments)

    def get_argument(self, name: str) -> Any:
        """Return an argument of transformers' Trainer; None if the request does not give it."""
        return self.parameters.get(name)

    @property
    def trusts_remote_code(self) -> bool:
        """Whether code in the model's folder may run."""
        return "--trust_remote_code=true" in self.trl_arguments

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Folders and files that decide the weights."""
        return (*super().inputs, *([self.teacher] if self.teacher else []))


def parse_run_arguments(arguments: Sequence[str] | None = None) -> RunArguments:
    """Return the request from the program's arguments, by default those of this process."""
    parser = argparse.ArgumentParser(description="Train with a script of TRL, or resume the training.")
    add_options(parser)
    parser.add_argument("--teacher", type=Path, help="folder of the larger model for distillation")
    parser.add_argument("--trl-version", required=True, help="version of TRL that the arguments were checked for")
    parser.add_argument("--index-url", default="", help="package index to install TRL from if the image lacks it")
    parser.add_argument("--wheels", type=Path, help="folder with wheels to install TRL from without an index")
    parser.add_argument("--reward", action="append", default=[], dest="rewards", help="NAME or NAME:SOURCE in base64")
    parser.add_argument("method", help="name of TRL's script, such as sft")
    parser.add_argument("trl_arguments", nargs=argparse.REMAINDER, help="arguments of TRL's script")
    given = vars(parser.parse_args(arguments))
    return RunArguments(**{**given, "rewards": tuple(given["rewards"]), "trl_arguments": tuple(given["trl_arguments"])})


def _parse_parameters(words: tuple[str, ...]) -> dict[str, Any]:
    """Return TRL's arguments by name.

    The items of a list follow its name as words. A name alone means true.
    """
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            found[name] = _parse_value(value) if equals else True
        else:
            found[name] = [*(found[name] if isinstance(found[name], list) else []), _parse_value(word)]
    return found


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

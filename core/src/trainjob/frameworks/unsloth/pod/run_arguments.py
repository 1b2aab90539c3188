"""Arguments of the program in the pod, which torchrun's processes get, too."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.frameworks.fine_tuning.training_run import TrainingRun, add_options

__all__ = ["RunArguments", "parse_run_arguments"]


@dataclass(frozen=True)
class RunArguments(TrainingRun):
    """The request of a training with Unsloth.

    Attributes:
        unsloth_version: version of Unsloth that the request was checked for.
        model_arguments: arguments of `FastLanguageModel.from_pretrained` by name, without the model's folder.
        lora_arguments: arguments of `FastLanguageModel.get_peft_model` by name; None trains all weights.
        arguments: arguments of TRL's configuration of the method by name, without the paths.
    """

    unsloth_version: str
    model_arguments: dict[str, Any]
    lora_arguments: dict[str, Any] | None
    arguments: dict[str, Any]

    @property
    def uses_lora(self) -> bool:
        """Whether the training is with LoRA."""
        return self.lora_arguments is not None

    def get_argument(self, name: str) -> Any:
        """Return an argument of transformers' Trainer; None if the request does not give it."""
        return self.arguments.get(name)

    @property
    def trusts_remote_code(self) -> bool:
        """Whether code in the model's folder may run."""
        return self.model_arguments.get("trust_remote_code") is True

    @property
    def parameters(self) -> dict[str, Any]:
        """All arguments by name, for the record of the run; the trainer's have precedence."""
        return {**self.model_arguments, **(self.lora_arguments or {}), **self.arguments}


def parse_run_arguments(arguments: Sequence[str] | None = None) -> RunArguments:
    """Return the request from the program's arguments, by default those of this process."""
    parser = argparse.ArgumentParser(description="Train with Unsloth, or resume the training.")
    add_options(parser)
    parser.add_argument("--unsloth-version", required=True, help="version that the arguments were checked for")
    parser.add_argument("--model-arguments", type=json.loads, default={}, help="JSON object: for from_pretrained")
    parser.add_argument("--lora-arguments", type=json.loads, help="JSON object: for get_peft_model, if any")
    parser.add_argument("--arguments", type=json.loads, default={}, help="JSON object: for TRL's configuration")
    parser.add_argument("method", help="method of TRL's trainer, such as sft")
    return RunArguments(**vars(parser.parse_args(arguments)))

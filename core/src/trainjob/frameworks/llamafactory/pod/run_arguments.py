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
    """The request of a training with LLaMA-Factory.

    Attributes:
        llamafactory_version: version of LLaMA-Factory that the request was checked for.
        arguments: LLaMA-Factory's arguments by name, without the paths.
    """

    llamafactory_version: str
    arguments: dict[str, Any]

    @property
    def uses_lora(self) -> bool:
        """Whether the training is with LoRA."""
        return self.arguments.get("finetuning_type") == "lora"

    @property
    def resizes_vocabulary(self) -> bool:
        """Whether the training adds embeddings for further tokens of the tokenizer."""
        return self.arguments.get("resize_vocab") is True

    def get_argument(self, name: str) -> Any:
        """Return an argument of transformers' Trainer; None if the request does not give it."""
        return self.arguments.get(name)

    @property
    def trusts_remote_code(self) -> bool:
        """Whether code in the model's folder may run."""
        return self.arguments.get("trust_remote_code") is True


def parse_run_arguments(arguments: Sequence[str] | None = None) -> RunArguments:
    """Return the request from the program's arguments, by default those of this process."""
    parser = argparse.ArgumentParser(description="Train with LLaMA-Factory, or resume the training.")
    add_options(parser)
    parser.add_argument("--llamafactory-version", required=True, help="version that the arguments were checked for")
    parser.add_argument("--arguments", type=json.loads, default={}, help="JSON object: LLaMA-Factory's arguments")
    parser.add_argument("method", help="LLaMA-Factory's stage, such as sft")
    return RunArguments(**vars(parser.parse_args(arguments)))

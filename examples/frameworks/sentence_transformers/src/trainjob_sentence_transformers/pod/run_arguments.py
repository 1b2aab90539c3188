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
    """The request of a training with sentence-transformers.

    Attributes:
        library_version: version of sentence-transformers that the request was checked for.
        index_url: package index to install it from; empty means pip's default.
        wheels: folder with wheels to install it from without an index; None for no folder.
        loss: name, arguments and dimensions of the loss.
        max_length: length in tokens to which a text is cut; None for the model's own.
        arguments: arguments of the trainer by name, without the paths.
    """

    library_version: str
    index_url: str
    wheels: Path | None
    loss: dict[str, Any]
    max_length: int | None
    arguments: dict[str, Any]

    @property
    def uses_lora(self) -> bool:
        """Whether the training is with LoRA."""
        return False

    @property
    def trusts_remote_code(self) -> bool:
        """Whether code in the model's folder may run."""
        return False

    def get_argument(self, name: str) -> Any:
        """Return an argument of the trainer; None if the request does not give it."""
        return self.arguments.get(name)

    @property
    def parameters(self) -> dict[str, Any]:
        """All arguments by name, for the record of the run."""
        loss = {"loss": self.loss["name"], **{f"loss_{name}": value for name, value in self.loss["arguments"].items()}}
        more = {"matryoshka_dims": self.loss["dimensions"], "max_length": self.max_length}
        return {**loss, **more, **self.arguments}


def parse_run_arguments(arguments: Sequence[str] | None = None) -> RunArguments:
    """Return the request from the program's arguments, by default those of this process."""
    parser = argparse.ArgumentParser(description="Train an embedding model, or resume the training.")
    add_options(parser)
    parser.add_argument("--library-version", required=True, help="version that the arguments were checked for")
    parser.add_argument("--index-url", default="", help="package index to install the library from if it is missing")
    parser.add_argument("--wheels", type=Path, help="folder with wheels to install the library from without an index")
    parser.add_argument("--loss", type=json.loads, required=True, help="JSON object: name, arguments, dimensions")
    parser.add_argument("--max-length", type=int, help="length in tokens to which a text is cut")
    parser.add_argument("--arguments", type=json.loads, default={}, help="JSON object: arguments of the trainer")
    parser.set_defaults(method="embedding")
    return RunArguments(**vars(parser.parse_args(arguments)))

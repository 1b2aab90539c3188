"""TorchTune as the built-in trainer of the Trainer's runtimes (Trainer 2.3, plugins/torch/torchtune.go)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["STOCK_RUNTIMES", "find_output_folder"]

STOCK_RUNTIMES = "torchtune-"
"""Start of the names of the runtimes that the Trainer ships."""
_BUILTIN_COMMAND = ["tune", "run"]
_OUTPUT_FOLDER = "output_dir="


def find_output_folder(words: Sequence[str]) -> str | None:
    """Return the output folder of a `tune` command.

    [trainjob.frameworks.output_folder.find_output_folder][] explains it.
    """
    if "tune" not in words:
        return None
    folders = [word.removeprefix(_OUTPUT_FOLDER) for word in words if word.startswith(_OUTPUT_FOLDER)]
    return folders[-1] if folders and list(words) != _BUILTIN_COMMAND else ""

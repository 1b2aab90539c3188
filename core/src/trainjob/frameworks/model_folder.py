"""Folder of a complete model, and the libraries that load it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.programs.locked_library import import_library

__all__ = ["PRECISIONS", "find_problem", "import_with_torch"]

PRECISIONS = {"auto": "auto", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Names of data types in torch by the value of a step's `precision`."""


def find_problem(field: str, folder: Path) -> Problem | None:
    """Return what a folder lacks to be a model.

    Args:
        field: field of the request with the path.
        folder: the folder.
    """
    if (folder / "adapter_config.json").is_file():
        rule = "it has a LoRA adapter alone: export the model with adapter='merge'"
        return Problem(field, str(folder), rule)
    if not read_object(folder / "config.json").get("model_type"):
        rule = "it must be the folder of a model with its config.json, such as the destination of an export"
        return Problem(field, str(folder), rule)
    return None


def import_with_torch(name: str) -> Any:
    """Import a library; install it first if the image does not contain it.

    The installation is that of lm-evaluation-harness, which has transformers, too.

    Raises:
        InvalidSpec: the image has no torch.
        RuntimeError: pip failed.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        rule = "it must contain torch, which has to fit the node's GPU driver"
        raise InvalidSpec(Problem("image", "the image of this pod", rule)) from None
    return import_library(name, "frameworks.evaluation.lock")

"""Program that checks the input, and replaces itself with torchrun.

Without a GPU, Unsloth would train with transformers and TRL alone on the CPU, which takes many times as long (unsloth
2026.10.9, _cpu_init.py). Therefore, a node without a GPU is refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.architecture import check_architecture
from trainjob.frameworks.fine_tuning.checks import check_model, check_package, get_version
from trainjob.frameworks.fine_tuning.launch import (
    lease_output,
    run_program,
    set_environment,
    set_module_path,
    torchrun_command,
)
from trainjob.frameworks.fine_tuning.space import check_space
from trainjob.frameworks.trl.pod.rows import TRL_COLUMNS, check_rows, rename_text_column
from trainjob.frameworks.unsloth.pod.run_arguments import RunArguments, parse_run_arguments

__all__ = ["main"]

_TRAINING = "trainjob.frameworks.unsloth.pod.training"
_REPORTED = ("unsloth", "unsloth_zoo", "trl", "transformers", "torch", "peft", "bitsandbytes", "datasets")


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the training, and return an exit code only if it cannot start."""
    return run_program("unsloth", prepare, arguments)


def prepare(words: Sequence[str]) -> list[str]:
    """Return torchrun's command, after checks of node, image and input; set its environment.

    Args:
        words: the program's arguments.

    Raises:
        OutputInUse: another training uses the output folder.
        InvalidSpec: the node has no GPU, the image has another Unsloth, or model or dataset does not fit the method.
        OSError: a file cannot be read.
    """
    run = parse_run_arguments(words)
    check_model(run.model, "model_path")
    check_gpu()
    rule = f"it must contain Unsloth {run.unsloth_version}"
    check_package("unsloth", "Unsloth", run.unsloth_version, rule, _REPORTED)
    lease_output(run)  # it creates the folder, which a node or an image that does not fit must not leave
    check_architecture(run)
    check_space(run, "unsloth")
    check_dataset(run)
    scratch = Path(tempfile.mkdtemp(prefix="unsloth-"))
    set_environment(scratch)
    set_unsloth_environment(scratch)
    set_module_path()
    return torchrun_command(_TRAINING, words)


def check_gpu() -> None:
    """Refuse a node without a GPU that the image's torch can use.

    An image without torch is refused by a later check.

    Raises:
        InvalidSpec: there is no such GPU.
    """
    if not get_version("torch"):
        return
    import torch

    if not torch.accelerator.is_available():
        advice = "give a GPU, such as resources_per_node={'gpu': 1}, and an image with torch for this kind of GPU"
        rule = f"Unsloth trains on GPUs only, and torch {torch.__version__} finds none: {advice}"
        raise InvalidSpec(Problem("config.resources_per_node", "a node without a GPU", rule))


def check_dataset(run: RunArguments) -> None:
    """Refuse datasets that the method cannot use.

    Raises:
        InvalidSpec: a dataset does not exist, a column is missing, or conversations have no chat template.
    """
    # Unsloth prepares the rows of SFT itself, and needs no column `conversations` (unsloth_zoo 2026.10.9,
    # dataset_utils.py: `sft_prepare_dataset`).
    choices = rename_text_column(TRL_COLUMNS[run.method], run.arguments.get("dataset_text_field", "text"))
    check_rows(run, choices, run.arguments.get("chat_template_path", ""))


def set_unsloth_environment(scratch: Path) -> None:
    """Set the environment variables of Unsloth, except those that the step sets.

    Args:
        scratch: folder for the code that Unsloth generates; by default it would be in the working directory.
    """
    os.environ.setdefault("UNSLOTH_DISABLE_CPU_FALLBACK", "1")
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # otherwise each start downloads a file of the Hub
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", str(scratch / "unsloth_compiled_cache"))

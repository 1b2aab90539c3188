"""Program that checks the input, and replaces itself with torchrun.

It runs once in each pod. Errors of the input therefore end the pod within seconds, before torch is loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainjob.frameworks.fine_tuning.launch import (
    lease_output,
    run_program,
    set_environment,
    set_module_path,
    torchrun_command,
)
from trainjob.frameworks.fine_tuning.space import check_space
from trainjob_sentence_transformers.pod.installation import provide_library
from trainjob_sentence_transformers.pod.model_files import check_model_files
from trainjob_sentence_transformers.pod.rows import check_rows
from trainjob_sentence_transformers.pod.run_arguments import parse_run_arguments

__all__ = ["main"]

_TRAINING = "trainjob_sentence_transformers.pod.training"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the training, and return an exit code only if it cannot start."""
    return run_program("sentence_transformers", prepare, arguments)


def prepare(words: Sequence[str]) -> list[str]:
    """Return torchrun's command, after checks of model and dataset; set its environment.

    Args:
        words: the program's arguments.

    Raises:
        OutputInUse: another training uses the output folder.
        InvalidSpec: the model cannot be trained, or the dataset does not fit the loss.
        TrainJobError: the library cannot be installed.
        OSError: a file cannot be read or written.
    """
    run = parse_run_arguments(words)
    check_model_files(run.model)
    lease_output(run)
    scratch = Path(tempfile.mkdtemp(prefix="sentence-transformers-"))
    set_environment(scratch)
    installed = provide_library(run, scratch / "packages")
    check_space(run, "sentence_transformers")
    check_rows(run)  # after the installation, because an image without the library may lack pyarrow
    set_module_path(*([installed] if installed else []))
    return torchrun_command(_TRAINING, words)

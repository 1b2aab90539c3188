"""Program that checks the input, and replaces itself with torchrun.

`llamafactory-cli train` starts torchrun by itself only if it sees several GPUs, and then ignores the Trainer's `PET_*`
variables (llamafactory 0.9.5, launcher.py). Each node of several would therefore train a model of its own.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.architecture import check_architecture
from trainjob.frameworks.fine_tuning.checks import check_model, check_package, has_chat_template
from trainjob.frameworks.fine_tuning.launch import (
    lease_output,
    run_program,
    set_environment,
    set_module_path,
    torchrun_command,
)
from trainjob.frameworks.fine_tuning.row_checks import Choices, check_rows_of
from trainjob.frameworks.fine_tuning.space import check_space
from trainjob.frameworks.llamafactory.pod.conversations import find_row_problem
from trainjob.frameworks.llamafactory.pod.run_arguments import RunArguments, parse_run_arguments

__all__ = ["main"]

_TRAINING = "trainjob.frameworks.llamafactory.pod.training"
_REPORTED = ("llamafactory", "transformers", "torch", "trl", "peft", "accelerate", "datasets")
# Of trainjob.frameworks.llamafactory.pod.conversations, which converts the rows.
_COLUMNS: Mapping[str, Choices] = {
    "pt": (("text",),),
    "sft": (("prompt", "completion"), ("messages",), ("conversations",)),
    "dpo": (("chosen", "rejected"),),
    "kto": (("prompt", "completion", "label"),),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the training, and return an exit code only if it cannot start."""
    return run_program("llamafactory", prepare, arguments)


def prepare(words: Sequence[str]) -> list[str]:
    """Return torchrun's command, after checks of the input; set its environment.

    Args:
        words: the program's arguments.

    Raises:
        OutputInUse: another training uses the output folder.
        InvalidSpec: the image has another LLaMA-Factory, or model or dataset does not fit the method.
        OSError: a file cannot be read.
    """
    run = parse_run_arguments(words)
    check_model(run.model, "model_path")
    lease_output(run)
    check_version_of_image(run)
    check_architecture(run)
    check_space(run, "llamafactory")
    for path in filter(None, (run.dataset, run.eval_dataset)):
        check_dataset(run, path)
    set_environment(Path(tempfile.mkdtemp(prefix="llamafactory-")))
    # By default it logs each file that it reads and the whole configuration of the model several times.
    os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARNING")
    set_module_path()
    return torchrun_command(_TRAINING, words)


def check_version_of_image(run: RunArguments) -> None:
    """Refuse an image without the version of LLaMA-Factory that the request names.

    Raises:
        InvalidSpec: the image has another version, or none.
    """
    rule = f"it must contain LLaMA-Factory {run.llamafactory_version}; without image=, its own image is used"
    check_package("llamafactory", "LLaMA-Factory", run.llamafactory_version, rule, _REPORTED)


def check_dataset(run: RunArguments, path: Path) -> None:
    """Refuse a dataset that the method cannot use.

    Raises:
        InvalidSpec: it does not exist, a column is missing, or conversations have no chat template.
    """
    find_problem = functools.partial(find_row_problem, method=run.method)
    rows = check_rows_of(path, run.method, run.columns, _COLUMNS[run.method], find_problem)
    if run.method == "dpo" and not rows.has_conversations and "prompt" not in rows.columns:
        rule = "dpo needs the column prompt, unless chosen and rejected are conversations with the prompt"
        raise InvalidSpec(Problem("dataset_path", str(path), rule))
    if rows.has_conversations and "template" not in run.arguments and not has_chat_template(run.model):
        rule = "the rows are conversations, but its tokenizer has no chat template: give template"
        raise InvalidSpec(Problem("model_path", str(run.model), rule))

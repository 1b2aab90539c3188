"""Program that checks the input, and replaces itself with torchrun.

It runs once in each pod. Errors of the input therefore end the pod within seconds, before torch is loaded.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.architecture import check_architecture
from trainjob.frameworks.fine_tuning.checks import check_model, lacks_padding
from trainjob.frameworks.fine_tuning.launch import (
    lease_output,
    run_program,
    set_environment,
    set_module_path,
    torchrun_command,
)
from trainjob.frameworks.fine_tuning.row_checks import Choices
from trainjob.frameworks.fine_tuning.space import check_space
from trainjob.frameworks.trl.pod.installation import provide_trl
from trainjob.frameworks.trl.pod.model_arguments import is_untrainable
from trainjob.frameworks.trl.pod.rows import TRL_COLUMNS, check_rows, rename_text_column
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments

__all__ = ["main"]

_TRAINING = "trainjob.frameworks.trl.pod.training"
_REWARD_MODULE = "trainjob_reward"
# Source: trl 1.16, docs/source/dataset_formats.md and the trainers.
_COLUMNS: Mapping[str, Choices] = {
    **TRL_COLUMNS,
    "sft": (*TRL_COLUMNS["sft"], ("conversations",)),
    "reward": (("chosen", "rejected"), ("chosen_ids", "rejected_ids")),
    "grpo": (("prompt",),),
    "rloo": (("prompt",),),
    "distillation": (("prompt",),),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the training, and return an exit code only if it cannot start."""
    return run_program("trl", prepare, arguments)


def prepare(words: Sequence[str]) -> list[str]:
    """Return torchrun's command, after checks of model and dataset; set its environment.

    Args:
        words: the program's arguments.

    Raises:
        OutputInUse: another training uses the output folder.
        InvalidSpec: model or dataset does not fit the method.
        TrainJobError: TRL cannot be installed.
        OSError: a file cannot be read or written.
    """
    run = parse_run_arguments(words)
    check_models(run)
    lease_output(run)
    scratch = Path(tempfile.mkdtemp(prefix="trl-"))
    set_environment(scratch)
    installed = provide_trl(run, scratch / "packages")
    check_architecture(run)
    check_space(run, "trl")
    check_datasets(run)  # after the installation, because an image without TRL may lack pyarrow
    (scratch / "modules").mkdir()
    write_reward_modules(run.rewards, scratch / "modules")
    set_module_path(scratch / "modules", *([installed] if installed else []))
    return torchrun_command(_TRAINING, words)


def check_models(run: RunArguments) -> None:
    """Refuse folders that contain no model.

    Raises:
        InvalidSpec: a folder does not exist or has no configuration of a model, TRL fails with this type of model, or
            its tokenizer cannot pad texts.
    """
    check_model(run.model, "model_path")
    kind = str(read_object(run.model / "config.json").get("model_type"))
    if is_untrainable(kind, run.method):
        rule = f"TRL {run.trl_version} cannot compute the loss of {run.method} for this type of model"
        raise InvalidSpec(Problem("model_path", kind, rule))
    if lacks_padding(run.model) and not (_get_trl_argument(run, "pad_token") or _get_trl_argument(run, "eos_token")):
        rule = "its tokenizer has no pad_token and no eos_token: name one of its tokens in tokenizer_config.json"
        raise InvalidSpec(Problem("model_path", str(run.model), rule))
    if run.teacher:
        check_model(run.teacher, "config.teacher_path")


def check_datasets(run: RunArguments) -> None:
    """Refuse datasets that the method cannot use.

    Raises:
        InvalidSpec: a dataset does not exist, a column is missing, or conversations have no chat template.
    """
    text_column = _get_trl_argument(run, "dataset_text_field") or "text"
    choices = list_column_choices(run.method, text_column)
    check_rows(run, choices, _get_trl_argument(run, "chat_template_path"))


def list_column_choices(method: str, text_column: str = "text") -> Choices:
    """Return the sets of columns, of which a method needs one completely.

    Args:
        method: the method.
        text_column: name of SFT's column with plain text.
    """
    return rename_text_column(_COLUMNS[method], text_column)


def write_reward_modules(rewards: Sequence[str], folder: Path) -> None:
    """Write a module for each reward function whose source is sent."""
    for number, reward in enumerate(rewards):
        _, colon, source = reward.partition(":")
        if colon:
            text = base64.b64decode(source).decode()
            (folder / f"{_REWARD_MODULE}_{number}.py").write_text(text, encoding="utf-8")


def reward_names(rewards: Sequence[str]) -> list[str]:
    """Return the names by which TRL's script finds the reward functions."""
    return [
        f"{_REWARD_MODULE}_{number}.{reward.partition(':')[0]}" if ":" in reward else reward
        for number, reward in enumerate(rewards)
    ]


def _get_trl_argument(run: RunArguments, name: str) -> str:
    start = f"--{name}="
    return next((word.removeprefix(start) for word in run.trl_arguments if word.startswith(start)), "")

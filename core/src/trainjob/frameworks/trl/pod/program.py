"""Program that checks the input, and replaces itself with torchrun.

It runs once in each pod. Errors of the input therefore end the pod within seconds, before torch is loaded.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem, TrainJobError, redact_credentials
from trainjob.frameworks.packed_code import find_packed_code
from trainjob.frameworks.transformers.start import SAVE_ENV
from trainjob.frameworks.trl.pod.dataset_files import check_columns
from trainjob.frameworks.trl.pod.installation import provide_trl
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments
from trainjob.version import check_version

__all__ = ["main"]

_TRAINING = "trainjob.frameworks.trl.pod.training"
_REWARD_MODULE = "trainjob_reward"
_ENVIRONMENT = {**SAVE_ENV, "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the training, and return an exit code only if it cannot start."""
    try:
        words = check_version(sys.argv[1:] if arguments is None else arguments)
        command = prepare(parse_run_arguments(words), words)
        os.execvp(command[0], command)  # noqa: S606 - it is our own command
    except InvalidSpec as refusal:
        return _fail(2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(1, str(failure))


def prepare(run: RunArguments, words: Sequence[str]) -> list[str]:
    """Return torchrun's command, after checks of model and dataset; set its environment.

    Args:
        run: the request.
        words: the arguments that `run` was parsed from.

    Raises:
        InvalidSpec: model or dataset does not fit the method.
        TrainJobError: TRL cannot be installed.
        OSError: a file cannot be read or written.
    """
    check_models(run)
    scratch = Path(tempfile.mkdtemp(prefix="trl-"))
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("HF_HOME", str(scratch / "huggingface"))
    installed = provide_trl(run, scratch / "packages")
    check_datasets(run)  # after the installation, because an image without TRL may lack pyarrow
    (scratch / "modules").mkdir()
    write_reward_modules(run.rewards, scratch / "modules")
    path = [str(scratch / "modules"), *([str(installed)] if installed else []), *find_packed_code()]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*path, os.environ.get("PYTHONPATH")]))
    # Without --, torchrun would take `--run` for an abbreviation of its own options.
    return [sys.executable, "-m", "torch.distributed.run", "-m", "--", _TRAINING, *words]


def check_models(run: RunArguments) -> None:
    """Refuse folders that contain no model.

    Raises:
        InvalidSpec: a folder does not exist or has no configuration of a model.
    """
    _check_model(run.model, "model_path")
    if run.teacher:
        _check_model(run.teacher, "config.teacher_path")


def check_datasets(run: RunArguments) -> None:
    """Refuse datasets that the method cannot use.

    Raises:
        InvalidSpec: a dataset does not exist, a column is missing, or conversations have no chat template.
    """
    text_column = _get_trl_argument(run, "dataset_text_field") or "text"
    conversations = check_columns(run.dataset, run.method, run.columns, text_column)
    if run.eval_dataset:
        conversations |= check_columns(run.eval_dataset, run.method, run.columns, text_column)
    if conversations and not _get_trl_argument(run, "chat_template_path") and not _has_chat_template(run.model):
        rule = (
            "the rows are conversations, but its tokenizer has no chat template: give chat_template_path in arguments"
        )
        raise InvalidSpec(Problem("model_path", str(run.model), rule))


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


def _check_model(folder: Path, field: str) -> None:
    if not (folder / "config.json").is_file():
        parent = folder if folder.is_dir() else folder.parent
        names = ", ".join(sorted(path.name for path in parent.iterdir())[:12]) if parent.is_dir() else "nothing"
        rule = f"it must be the folder of a model with config.json; {parent} contains {names or 'nothing'}"
        raise InvalidSpec(Problem(field, str(folder), rule))


def _has_chat_template(model: Path) -> bool:
    if any((model / name).exists() for name in ("chat_template.jinja", "chat_template.json", "chat_templates")):
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(json.loads((model / "tokenizer_config.json").read_bytes()).get("chat_template"))
    return False


def _get_trl_argument(run: RunArguments, name: str) -> str:
    start = f"--{name}="
    return next((word.removeprefix(start) for word in run.trl_arguments if word.startswith(start)), "")


def _fail(code: int, message: str) -> int:
    print(f"trl: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code

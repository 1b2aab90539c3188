"""Arguments of TRL's configuration, compared with those that the image's TRL has."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.unsloth.pod.run_arguments import RunArguments

__all__ = ["build_trainer_arguments"]


def build_trainer_arguments(run: RunArguments, config_class: Any, trl_version: str) -> dict[str, Any]:
    """Return the arguments of TRL's configuration by name.

    Unsloth works with many versions of TRL, and drops an argument that the installed one lacks, with a warning (unsloth
    2026.10.9, models/rl_config_compat.py).

    Args:
        run: the request.
        config_class: TRL's class of the configuration, a dataclass.
        trl_version: version of the installed TRL.

    Raises:
        InvalidSpec: the class lacks an argument.
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    rule = f"TRL {trl_version} of the image has no such argument: use an image with a newer TRL"
    missing = {name: value for name, value in run.arguments.items() if name not in known}
    if missing:
        raise InvalidSpec([Problem(f"config.arguments.{name}", repr(value), rule) for name, value in missing.items()])
    arguments = dict(run.arguments)
    if os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        arguments.setdefault("report_to", ["kubeflow"])  # the Trainer's own progress (gate TrainJobStatus, Trainer 2.2)
    return {**arguments, "output_dir": str(run.output), "disable_tqdm": True}

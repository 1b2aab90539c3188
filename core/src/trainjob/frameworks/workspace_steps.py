"""Rules of fine-tune steps that train any model of a workspace, for several frameworks."""

from __future__ import annotations

import re

from trainjob.spec import FineTune
from trainjob.spec.base import invalid_field

PROGRAM_DEPENDENCIES = (
    "frameworks.fine_tuning",
    "frameworks.run_inputs",
    "frameworks.packed_code",
    "frameworks.transformers",
    "errors",
)
"""Names below `trainjob` of the modules that a program in the pod imports, besides its own package."""
_MODEL_NAME = re.compile(r"[\w][\w./:@+-]{0,127}", re.ASCII)


def check_model_name(name: str, framework: str) -> str:
    """Return the name of a model, which is metadata.

    Raises:
        InvalidSpec: the name contains other characters.
    """
    if not _MODEL_NAME.fullmatch(name):
        rule = f"with {framework} it is a free name of 1 to 128 letters, digits and . / : @ + - _, such as llama3.2-1b"
        raise invalid_field("", name, rule)
    return name


def check_workspace(step: FineTune, framework: str) -> None:
    """Refuse a step without a workspace.

    Raises:
        InvalidSpec: the step has none.
    """
    if step.workspace is None:
        fetch = "fetch the model with InitializeModel and the dataset with InitializeDataset"
        raise invalid_field("workspace", None, f"{framework} needs a workspace: {fetch}")

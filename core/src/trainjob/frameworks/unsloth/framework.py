"""Unsloth's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.errors import Problem
from trainjob.frameworks.unsloth.arguments import build_program_arguments
from trainjob.frameworks.unsloth.config import GPU_ADVICE, UnslothConfig
from trainjob.frameworks.workspace_framework import WorkspaceFramework
from trainjob.spec import FineTune
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework


def find_missing(step: FineTune, config: Any) -> Iterator[Problem]:
    """Yield the image and the GPU that the step lacks, unless its runtime may have them.

    The tags of Unsloth's own image, `unsloth/unsloth`, name releases of Unsloth Studio or days, and not the version of
    Unsloth that the image contains (unslothai/unsloth, .github/workflows/docker-publish.yml, October 2026). Therefore,
    no image is chosen.
    """
    if step.runtime:
        return
    if not step.image:
        rule = f"give an image with Unsloth {config.unsloth_version}, or a runtime with such an image"
        yield from invalid_field("image", None, rule).problems
    if config.resources_per_node is None:
        rule = f"{GPU_ADVICE}, or a runtime that requests one"
        yield from invalid_field("config.resources_per_node", None, rule).problems


FRAMEWORK: Framework = WorkspaceFramework(
    "Unsloth",
    UnslothConfig,
    "trainjob.frameworks.unsloth.pod",
    build_program_arguments,
    find_missing=find_missing,
    dependencies=("trainjob.frameworks.trl.pod.rows",),  # its trainers are those of TRL
)

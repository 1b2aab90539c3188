"""LLaMA-Factory's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.llamafactory.arguments import build_program_arguments
from trainjob.frameworks.llamafactory.config import LLaMAFactoryConfig
from trainjob.frameworks.workspace_framework import WorkspaceFramework
from trainjob.spec import FineTune
from trainjob.spec.framework import Framework


def find_image(step: FineTune) -> str | None:
    """Return LLaMA-Factory's own image, unless the step names an image or a runtime.

    The project publishes an image for each release (llamafactory 0.9.5, .github/workflows/docker.yml).
    """
    if step.image or step.runtime or not isinstance(step.config, LLaMAFactoryConfig):
        return step.image
    return f"docker.io/hiyouga/llamafactory:{step.config.llamafactory_version}"


FRAMEWORK: Framework = WorkspaceFramework(
    "LLaMA-Factory", LLaMAFactoryConfig, "trainjob.frameworks.llamafactory.pod", build_program_arguments, find_image
)

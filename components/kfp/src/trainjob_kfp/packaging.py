"""How a component's function becomes a component: what it runs in, what it carries, what its task hands on."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import requires
from typing import Any

from kfp import dsl

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.embedding import unpacking_program
from trainjob_kfp.image import BASE_IMAGE, IMAGE_VARIABLE

EMBED_VARIABLE = "TRAINJOB_KFP_EMBED"
"""`true` while pipelines are compiled: components carry our sources in their YAML, and need no image of ours."""

_PYTHON_IMAGE = "python:3.12-slim"

# None of these is applied to the launcher's own pod (`apply_to_task`): it would ask for the accelerators a second time,
# wait for the same nodes, hold secrets that it does not read, and pin a claim of one node (ReadWriteOnce) to its own.
_FOR_TRAINING_PODS = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.ENV,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_VOLUMES,
]


def trainjob_component(function: Callable[..., Any]) -> Any:
    """Make a component of this function; the decorator of every component of this distribution.

    Raises:
        InvalidSpec: `TRAINJOB_KFP_EMBED` says neither yes nor no.
    """
    if not _embeds():
        return _component(function, image=BASE_IMAGE)
    if image := os.environ.get(IMAGE_VARIABLE):
        component = _component(function, image=image)
    else:
        component = _component(function, image=_PYTHON_IMAGE, installs=_needs_of_the_core())
    command = component.component_spec.implementation.container.command
    command[-1] = unpacking_program(function) + command[-1]  # the last word is the text that kfp's executor imports
    return component


def _component(function: Callable[..., Any], *, image: str, installs: list[str] | None = None) -> Any:
    return dsl.component(
        function,
        base_image=image,
        install_kfp_package=bool(installs),
        packages_to_install=installs or [],
        task_config_passthroughs=_FOR_TRAINING_PODS if dsl.TaskConfig in function.__annotations__.values() else None,
    )


def _embeds() -> bool:
    said = os.environ.get(EMBED_VARIABLE, "").lower()
    if said not in ("", "0", "false", "1", "true"):
        raise InvalidSpec(Problem(EMBED_VARIABLE, said, "true or false"))
    return said in ("1", "true")


def _needs_of_the_core() -> list[str]:
    return [need for need in requires("trainjob") or () if "extra ==" not in need]

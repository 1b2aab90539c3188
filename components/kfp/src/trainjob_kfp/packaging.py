"""Decorator that makes a KFP component from a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import requires
from typing import Any

from kfp import dsl

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.embedding import build_unpacking_program, remove_docstring
from trainjob_kfp.image import BASE_IMAGE, IMAGE_VARIABLE

EMBED_VARIABLE = "TRAINJOB_KFP_EMBED"
"""Environment variable that embeds our sources in the components' YAML, if it is `true` while a pipeline is compiled.

Such components do not need our image.
"""

_PYTHON_IMAGE = "python:3.12-slim"

# None of these is applied to the launcher's own pod (`apply_to_task`). That pod would request the accelerators a second
# time, wait for the same nodes, get secrets that it does not read, and bind a ReadWriteOnce claim to its own node.
_TASK_CONFIG_PASSTHROUGHS = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.ENV,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_VOLUMES,
]


def trainjob_component(function: Callable[..., Any]) -> Any:
    """Return a KFP component for a function; the decorator of all components here.

    Raises:
        InvalidSpec: `TRAINJOB_KFP_EMBED` is neither true nor false.
    """
    if not _is_embedding_enabled():
        return _make_component(function, image=BASE_IMAGE)
    if image := os.environ.get(IMAGE_VARIABLE):
        component = _make_component(function, image=image)
    else:
        component = _make_component(function, image=_PYTHON_IMAGE, packages=_core_requirements())
    command = component.component_spec.implementation.container.command
    # The last word of the command is the source that kfp's executor imports.
    command[-1] = build_unpacking_program(function) + remove_docstring(command[-1])
    return component


def _make_component(function: Callable[..., Any], *, image: str, packages: list[str] | None = None) -> Any:
    return dsl.component(
        function,
        base_image=image,
        install_kfp_package=bool(packages),
        packages_to_install=packages or [],
        task_config_passthroughs=_TASK_CONFIG_PASSTHROUGHS
        if dsl.TaskConfig in function.__annotations__.values()
        else None,
    )


def _is_embedding_enabled() -> bool:
    value = os.environ.get(EMBED_VARIABLE, "").lower()
    if value not in ("", "0", "false", "1", "true"):
        raise InvalidSpec(Problem(EMBED_VARIABLE, value, "true or false"))
    return value in ("1", "true")


def _core_requirements() -> list[str]:
    return [requirement for requirement in requires("trainjob") or () if "extra ==" not in requirement]

"""Decorator that makes a KFP component from a function."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable
from importlib.metadata import requires
from typing import Any

from kfp import dsl
from kfp.dsl import python_component
from kfp.dsl.pipeline_task import TaskState

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.code_configmap import loading_program
from trainjob_kfp.image import BASE_IMAGE, IMAGE_VARIABLE
from trainjob_kfp.input_values import to_input

CODE_VARIABLE = "TRAINJOB_KFP_CODE"
"""Environment variable that says where the steps get our code from; read when a pipeline is compiled.

`image`, the default: from our image. `configmap`: from a ConfigMap in the namespace of the run
([trainjob_kfp.code_configmap][]), and the image needs only the packages that our code imports.
"""
_CODE_SOURCES = ("image", "configmap")

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


_NEVER_CACHED = ("promote_model", "rollback_model")  # what is served changes without a change of their inputs


class TrainJobComponent(python_component.PythonComponent):  # type: ignore[misc]
    """A component whose tasks on a workspace are not cached, unless they are linked by data.

    Kubeflow Pipelines identifies a cached result by the task's own inputs. It knows neither the order of tasks nor the
    files in a workspace (2.17, backend/src/v2/cacheutils/cache.go). Without `after_jobs`, an export would be skipped
    after a new training. A name in `after_jobs` is new if the earlier step has run, and the same if it was cached.
    """

    def __call__(self, *args: Any, **arguments: Any) -> Any:
        """Create a task; `set_caching_options` of the author overrides its caching.

        A text for `queue`, `runtime`, `secret`, `resume_from` or `code` means a dict with the name or folder. An
        integer may be given for a float, and for the list `num_nodes`. A Python function is sent as its source, and the
        folder of a project is packed. `train` also takes the arguments of the Kubeflow SDK's `train`.

        Raises:
            InvalidSpec: there is no input of a name, or a constant argument in a pipeline is wrong; see
                [trainjob_kfp.compile_checks][]. The message has the file and line of the call.
        """
        try:
            return self._create_task(args, arguments)
        except InvalidSpec as error:
            place = f"{_find_author_line()}: the call of {self.python_func.__name__} is wrong:"
            raise InvalidSpec(error.problems, hint=error.hint, place=place) from None

    def _create_task(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        # Imported here, because an import of the components needs neither the step classes nor the launcher.
        from trainjob_kfp.code_origin import build_platform_config
        from trainjob_kfp.compile_checks import check_arguments, check_names
        from trainjob_kfp.launcher_settings import LauncherSettings, register_parameters
        from trainjob_kfp.sdk_arguments import ARGUMENTS, expand_arguments, to_plain_object

        inputs = self.component_spec.inputs or {}
        if self.python_func.__name__ == "train" and not {*arguments}.isdisjoint(ARGUMENTS):
            arguments = expand_arguments(arguments)
        check_names(self.python_func.__name__, arguments, inputs)
        plain = {name: to_plain_object(value) for name, value in arguments.items()}
        arguments = {name: to_input(name, value, inputs[name].type) for name, value in plain.items()}
        code = None
        if "code" in arguments:
            arguments["code"], code = _pack_code(arguments)
        task = super().__call__(*args, **arguments)
        if task.state is TaskState.FUTURE:
            defaults = {name: spec.default for name, spec in inputs.items() if name not in arguments}
            check_arguments(self.python_func.__name__, arguments, defaults)
            if _has_task_config(self.python_func):
                task.platform_config = LauncherSettings(build_platform_config(code) if code else {})
                register_parameters(task)
        is_stale = arguments.get("workspace") and not arguments.get("after_jobs")
        # Another model may have become the champion.
        is_stale = is_stale or arguments.get("champion") or self.python_func.__name__ in _NEVER_CACHED
        if is_stale and task.state is TaskState.FUTURE:
            task.set_caching_options(False)
        return task

    @property
    def pipeline_spec(self) -> Any:
        """The component compiled as a pipeline of its own; its only task has no earlier step."""
        spec = super().pipeline_spec
        if "workspace" in self.component_spec.inputs:
            for task in spec.root.dag.tasks.values():
                task.caching_options.Clear()
        return spec


def trainjob_component(function: Callable[..., Any]) -> Any:
    """Return a KFP component for a function; the decorator of all components here.

    Raises:
        InvalidSpec: `TRAINJOB_KFP_CODE` has another value than `image` and `configmap`.
    """
    source, image = os.environ.get(CODE_VARIABLE) or "image", os.environ.get(IMAGE_VARIABLE)
    if source not in _CODE_SOURCES:
        raise InvalidSpec(Problem(CODE_VARIABLE, repr(source), f"allowed are {', '.join(_CODE_SOURCES)}"))
    if source == "image":
        component = _make_component(function, image=BASE_IMAGE)
    elif image:
        component = _make_component(function, image=image)
    else:
        component = _make_component(function, image=_PYTHON_IMAGE, packages=_core_requirements())
    command = component.component_spec.implementation.container.command
    # The last word of the command is the source that kfp's executor imports.
    command[-1] = (loading_program() if source == "configmap" else "") + remove_docstring(command[-1])
    return component


def _pack_code(arguments: dict[str, Any]) -> tuple[Any, Any]:
    """Return the argument with the code of a project, and the code with its commit.

    [trainjob_kfp.project_code.pack_argument][] describes them; the errors have the names of the inputs.
    """
    from trainjob_kfp.input_names import name_inputs
    from trainjob_kfp.project_code import pack_argument

    try:
        return pack_argument(arguments["code"])
    except InvalidSpec as error:
        raise name_inputs(error, arguments) from None


def _find_author_line() -> str:
    """Return file and line of the innermost frame outside this package and kfp."""
    frame = inspect.currentframe()
    while frame and frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("trainjob_kfp", "kfp"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "a pipeline"


def remove_docstring(source: str) -> str:
    """Return a component's source without the function's docstring.

    kfp has copied the docstring to the component's description, and Argo stores the source about ten times in each
    Workflow. Annotations stay, because kfp's executor evaluates them.
    """
    *_, function = ast.parse(source).body
    lines = source.splitlines(keepends=True)
    match function:
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as docstring, _, *_]):
            del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "".join(lines)


def _make_component(function: Callable[..., Any], *, image: str, packages: list[str] | None = None) -> Any:
    component = dsl.component(
        function,
        base_image=image,
        install_kfp_package=bool(packages),
        packages_to_install=packages or [],
        task_config_passthroughs=_TASK_CONFIG_PASSTHROUGHS if _has_task_config(function) else None,
    )
    for spec in (component.component_spec.inputs or {}).values():
        # The docstring has the rest. Each Workflow contains the descriptions, and it may have 1 MiB (Argo 4.0).
        spec.description = " ".join(spec.description.split()).partition(". ")[0]
    return TrainJobComponent(component.component_spec, component.python_func)


def _has_task_config(function: Callable[..., Any]) -> bool:
    """Return whether a component creates a TrainJob, which gets settings of the task."""
    return dsl.TaskConfig in function.__annotations__.values()


def _core_requirements() -> list[str]:
    """Return the packages of the core that a launcher needs.

    `pathspec` reads the .gitignore files of an author.
    """
    return [each for each in requires("trainjob") or () if "extra ==" not in each and not each.startswith("pathspec")]

"""Checks of a component's constant arguments when a pipeline is compiled.

A wrong constant fails in the author's shell with the error that the launcher would raise, and no credential is written
into the YAML. Values that exist only in a run are not checked: outputs, parameters of the pipeline, items of a loop,
and placeholders. Settings of the task are not checked either, because the author sets them after the component is
called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kfp import dsl

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.framework_modules import list_own_frameworks
from trainjob.manifest import to_trainjob
from trainjob.spec import (
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    Promote,
    Rollback,
    TrainJob,
)
from trainjob.spec.base import iterate_texts
from trainjob.spec.credential_checks import check_source, check_text
from trainjob.spec.problems import describe_unknown_argument
from trainjob_kfp import steps
from trainjob_kfp.dataset_artifact import refuse_address
from trainjob_kfp.function_text import MAX_ARGUMENT_BYTES, SIZE_RULE
from trainjob_kfp.input_names import CONFIG_FIELDS, name_inputs
from trainjob_kfp.launcher import LAUNCH_ARGUMENTS, list_launch_problems

_NO_STEP_ARGUMENTS = (*LAUNCH_ARGUMENTS, "metric", "minimum")
_STEPS_WITH_AFTER_JOBS = ("evaluate", "evaluate_model", "export_model", "generate")
_STEPS: Mapping[str, type[Any]] = {
    "initialize_dataset": InitializeDataset,
    "initialize_model": InitializeModel,
    "fine_tune": FineTune,
    "export_model": ExportModel,
    "train": TrainJob,
    "evaluate": TrainJob,
    "evaluate_model": Evaluate,
    "generate": Generate,
    "promote_model": Promote,
    "rollback_model": Rollback,
}

# Placeholders of KFP, and those of Argo in texts. The source of a function may contain `{{` without being one.
_PLACEHOLDER = re.compile(r"\{\{(\$|channel:|workflow\.)")
# A field that no model has. Pydantic then reports each wrong field, but validates no combination of fields, which may
# depend on values of the run.
_FIELDS_ONLY = "_fields_only"
# For an unknown item of a list, so that its neighbors are not taken for an option and its value. It is a reference to
# a variable, which is never refused as a credential.
_UNKNOWN_ITEM = "$(UNKNOWN)"
_UNKNOWN_FUNCTION = "def unknown(**arguments):\n    pass\n"
_MOUNTED_CLAIM = "mounted"  # for the claim that is mounted at a path, whose name is a setting of the task
# The author may request GPUs on the task, and some models need exactly one, others several.
_POSSIBLE_TASK_CONFIGS = (
    None,
    dsl.TaskConfig(resources={"limits": {"nvidia.com/gpu": "1"}}),
    dsl.TaskConfig(resources={"limits": {"nvidia.com/gpu": "8"}}),
)


def check_arguments(component: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise an error if constant arguments of a component are wrong.

    Args:
        component: name of the component.
        arguments: arguments of the call by name, some of which may be values of a run.
        defaults: values of the inputs that were not given.

    Raises:
        InvalidSpec: the constants break rules; no message shows a credential.
    """
    unknown: list[str] = []
    given = {name: value for name, value in {**defaults, **arguments}.items() if value is not None}
    known = _drop_unknown(given, "", unknown)
    if isinstance(function_args := given.get("function_args"), Mapping):  # the names of all are known
        known["function_args"] = {**dict.fromkeys(function_args), **known["function_args"]}
    if any(_is_below(path, "code") for path in unknown):
        known.pop("code", None)
        unknown.append("code")
    if component == "export_model" and not given.get("destination"):
        unknown.append("destination")  # by default, the launcher gets it from the artifact
    has_artifact = arguments.get("dataset") is not None
    if has_artifact:
        unknown.append("storage_uri")  # the launcher gets it from the artifact
    if component == "fine_tune" and not _knows_framework(known, unknown):
        unknown += ["config", *CONFIG_FIELDS]
    problems = [problem for name, value in arguments.items() for problem in _list_text_problems(name, value)]
    if has_artifact and known.get("storage_uri"):
        problems.append(refuse_address(known["storage_uri"]))
    # The step's own error about such an argument could show the credential.
    ignored = [*unknown, *(problem.field for problem in problems), _FIELDS_ONLY, f"config.{_FIELDS_ONLY}"]
    found = list_launch_problems(known)
    if hasattr(steps, component):
        found += _list_step_problems(component, known, unknown)
    problems += [
        problem for problem in name_inputs(InvalidSpec(found), known).problems if not _is_ignored(problem, ignored)
    ]
    if problems:
        raise InvalidSpec(problems)


def check_names(component: str, names: Iterable[str], inputs: Collection[str]) -> None:
    """Raise an error if a component has no input of a name.

    Args:
        component: name of the component.
        names: names of the arguments of a call.
        inputs: names of the component's inputs.

    Raises:
        InvalidSpec: there is no such input; the error names the one that may be meant.
    """
    unknown = [name for name in names if name not in inputs]
    if unknown:
        step = _STEPS.get(component)
        renamed = {f"config.{field}": argument for argument, field in CONFIG_FIELDS.items()}
        raise InvalidSpec(
            [describe_unknown_argument(name, "input", component, inputs, step, renamed) for name in unknown]
        )


def _knows_framework(known: Mapping[str, Any], unknown: Sequence[str]) -> bool:
    """Return whether a configuration can be checked.

    The package of its framework may be only in the image of the step.
    """
    config = known.get("config")
    framework = known.get("framework") or (config.get("framework") if isinstance(config, dict) else None)
    return (framework is None and not {"framework", "config", "config.framework"} & {*unknown}) or (
        framework in list_own_frameworks()
    )


def _drop_unknown(value: Any, path: str, unknown: list[str]) -> Any:
    """Return a value without the parts that only a run has; append their paths to `unknown`."""
    if isinstance(value, Mapping):
        pairs = [
            (key, _drop_unknown(item, f"{path}.{key}" if path else f"{key}", unknown)) for key, item in value.items()
        ]
        return {key: item for key, item in pairs if item is not _UNKNOWN_ITEM}
    if isinstance(value, list | tuple):
        return [_drop_unknown(item, f"{path}[{number}]", unknown) for number, item in enumerate(value)]
    is_text = isinstance(value, str)
    if value is None or isinstance(value, bool | int | float) or (is_text and not _PLACEHOLDER.search(value)):
        return value
    unknown.append(path)
    return _UNKNOWN_ITEM


def _list_text_problems(name: str, value: Any) -> Iterator[Problem]:
    """Yield the problems of an argument with a credential or too much text."""
    for path, _, text in iterate_texts(value, name):
        if path == "code.archive":  # its files were checked when they were packed
            continue
        check = check_source if "def " in text and "\n" in text else check_text
        try:
            check(text, path)
        except InvalidSpec as error:
            yield from error.problems
    size = len(json.dumps(value, default=str).encode())
    if size > MAX_ARGUMENT_BYTES:
        yield Problem(name, f"{size} bytes", SIZE_RULE)


def _list_step_problems(component: str, known: Mapping[str, Any], unknown: Sequence[str]) -> list[Problem]:
    """Return the problems that a component's step has with any settings of the task."""
    no_arguments = _NO_STEP_ARGUMENTS if component in _STEPS_WITH_AFTER_JOBS else (*_NO_STEP_ARGUMENTS, "after_jobs")
    given = {name: value for name, value in known.items() if name not in no_arguments}
    if str(given.get("workspace", "")).startswith("/"):
        given["workspace"] = _MOUNTED_CLAIM
    unknown = [path for path in unknown if path.partition(".")[0].partition("[")[0] not in no_arguments]
    if "function" in unknown:
        given["function"] = _UNKNOWN_FUNCTION
    if unknown and not given.get("manifest"):
        given[_FIELDS_ONLY] = True
        if component == "fine_tune":
            given["config"] = {**given.get("config", {}), _FIELDS_ONLY: True}
    found: list[list[Problem]] = []
    for task_config in _POSSIBLE_TASK_CONFIGS:
        try:
            step = getattr(steps, component)(given, task_config)
            to_trainjob(step)
        except InvalidSpec as error:
            found.append(list(error.problems))
        else:
            return []
    return min(found, key=len)


def _is_ignored(problem: Problem, paths: Sequence[str]) -> bool:
    """Return whether a problem is about a value that only a run has.

    The name of a function's argument is known when its value is not.
    """
    is_name = problem.kind is ProblemKind.UNKNOWN and problem.field.startswith("function_args.")
    return _is_about(problem.field, [path for path in paths if not (is_name and path == problem.field)])


def _is_about(field: str, paths: Sequence[str]) -> bool:
    """Return whether a field is one of these paths, or above or below one."""
    return any(_is_below(field, path) or _is_below(path, field) for path in paths)


def _is_below(path: str, above: str) -> bool:
    return path.startswith(above) and path[len(above) : len(above) + 1] in ("", ".", "[")

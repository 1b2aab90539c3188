"""Conversion of a component's arguments and its task's settings to a step.

An argument that is empty or 0 counts as not given, except `interruption_retries` and `resume`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.function_source import function_from_source
from trainjob.manifest import add_env
from trainjob.spec import (
    CustomTrainer,
    CustomTrainerContainer,
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    ModelCheck,
    Promote,
    Rollback,
    TrainJob,
    TrainJobManifest,
    WorkspaceVolume,
)
from trainjob_kfp import task_settings
from trainjob_kfp.framework_config import build_config
from trainjob_kfp.function_text import convert_arguments
from trainjob_kfp.identity import POD_VARIABLE
from trainjob_kfp.input_names import CONFIG_FIELDS, add_problems
from trainjob_kfp.input_values import is_empty_text
from trainjob_kfp.standard_output import print_line
from trainjob_kfp.task_settings import TaskConfig

OUTPUT_FOLDER = "/workspace/output"
"""Folder of the checkpoints in every pod of a step."""
_FUNCTION_ONLY = sorted(CustomTrainer.model_fields.keys() - CustomTrainerContainer.model_fields.keys() - {"func"})
_CONTAINER_ONLY = sorted(CustomTrainerContainer.model_fields.keys() - CustomTrainer.model_fields.keys())
_EMPTY_IS_A_VALUE = ("interruption_retries", "resume")


def initialize_dataset(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> InitializeDataset:
    """Return the step of the component `initialize_dataset`.

    The arguments and errors are those of [fine_tune][].
    """
    return InitializeDataset(**_collect_fields_and_resources(arguments, task_config))


def initialize_model(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> InitializeModel:
    """Return the step of the component `initialize_model`.

    The arguments and errors are those of [fine_tune][].
    """
    return InitializeModel(**_collect_fields_and_resources(arguments, task_config))


def export_model(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> ExportModel:
    """Return the step of the component `export_model`.

    The arguments and errors are those of [fine_tune][].
    """
    return ExportModel(**_collect_fields_and_resources(arguments, task_config))


def evaluate_model(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> Evaluate:
    """Return the step of the component `evaluate_model`.

    The arguments and errors are those of [fine_tune][].
    """
    given = _collect_fields_and_resources(arguments, task_config)
    if isinstance(champion := given.get("champion"), Mapping):  # a form gives all of its fields
        given["champion"] = {name: value for name, value in champion.items() if value != ""}
    return Evaluate(**given)


def generate(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> Generate:
    """Return the step of the component `generate`.

    The arguments and errors are those of [fine_tune][].
    """
    return Generate(**_collect_fields_and_resources(arguments, task_config))


def promote_model(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> Promote:
    """Return the step of the component `promote_model`.

    The arguments and errors are those of [fine_tune][].
    """
    return Promote(**_collect_fields_and_resources(arguments, task_config))


def rollback_model(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> Rollback:
    """Return the step of the component `rollback_model`.

    The arguments and errors are those of [fine_tune][].
    """
    return Rollback(**_collect_fields_and_resources(arguments, task_config))


def fine_tune(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> FineTune:
    """Return the step of the component `fine_tune`.

    Args:
        arguments: arguments of the component by name.
        task_config: settings of the task.

    Raises:
        InvalidSpec: the arguments or settings break rules; it lists all of them.
    """
    given = _collect_fields(arguments, task_config)
    own = {name: given.pop(name) for name in (*CONFIG_FIELDS, "config") if name in given}
    config = build_config(own)
    config |= _merge_resources("resources_per_node", config, task_config)
    return FineTune(config=config, **given)


def train(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> TrainJob | TrainJobManifest:
    """Return the step of the component `train`.

    The arguments and errors are those of [fine_tune][].
    """
    if arguments.get("manifest"):
        return _build_from_manifest(arguments, task_config)
    return _build_train_job(arguments, task_config)


def evaluate(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> TrainJob:
    """Return the step of the component `evaluate`.

    The arguments and errors are those of [fine_tune][].
    """
    if not arguments.get("function"):
        raise InvalidSpec(Problem("function", "''", "give the text of a function: trainjob_kfp.source(function)"))
    given = {name: value for name, value in arguments.items() if name not in ("after_jobs", "any_run")}
    step = _build_train_job(given, task_config)
    folders = tuple(dict.fromkeys(_find_folders([arguments.get("function_args"), step.trainer.env])))
    if arguments.get("any_run") or not (step.workspace and folders):
        return step
    check = ModelCheck(folders=folders, after_jobs=tuple(arguments.get("after_jobs") or ()))
    return step.model_copy(update={"model_check": check})


def _find_folders(value: Any) -> Iterator[str]:
    """Yield the paths below `/workspace` that arguments or variables name."""
    if isinstance(value, str) and value.startswith("/workspace/"):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _find_folders(item)


def _build_train_job(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> TrainJob:
    given = _collect_fields(arguments, task_config, keep_mount=True)
    function, function_args = given.pop("function", ""), given.pop("function_args", {})
    others = _CONTAINER_ONLY if function else _FUNCTION_ONLY
    problems = _list_other_program(bool(function), others, {"func_args": function_args, **given})
    if "code" in given:
        given["code"] = _read_code(given["code"])
    names = {*CustomTrainer.model_fields, *CustomTrainerContainer.model_fields}
    trainer = {name: given.pop(name) for name in names if name in given}
    trainer = {name: value for name, value in trainer.items() if name not in others}
    match trainer.get("num_nodes"):
        case [count]:
            trainer["num_nodes"] = count
    trainer |= _merge_resources("resources_per_node", trainer, task_config)
    if function:
        trainer["func"] = _any_function
        try:
            func = function_from_source(function)
            trainer |= {"func": func, "func_args": convert_arguments(func, function_args)}
        except InvalidSpec as error:
            problems += error.problems
    with add_problems(problems):
        return TrainJob(trainer=trainer, **given)


def _read_code(code: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the packed code of a project, which a text of the run may contain as JSON.

    Raises:
        InvalidSpec: it is a folder or an archive, which the launcher's pod does not have.
    """
    path = code.get("path", "")
    if [*code] == ["path"] and path.startswith("{"):
        with contextlib.suppress(ValueError):
            code = json.loads(path)
    if code.keys() & {"archive", "config_map", "uri"}:
        return code
    rule = (
        "only a constant folder is packed, when the pipeline is compiled. A value of the run must be code that is "
        'packed: {"sha256": "...", "config_map": "..."}, as `trainjob pack DIR --config-map` writes it'
    )
    raise InvalidSpec(Problem("code", repr(path or code), rule))


def _any_function(**_: Any) -> None:
    """Replace a function that cannot be sent, so that the other fields are validated."""


def _list_other_program(is_function: bool, others: Iterable[str], arguments: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of arguments that only the other kind of program has."""
    rule = "leave it out, because the `function` runs" if is_function else "it is only allowed with a `function`"
    return [Problem(name, "given", rule) for name in others if arguments.get(name)]


def _build_from_manifest(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> TrainJob | TrainJobManifest:
    """Return the TrainJob of a given manifest.

    Only plain environment variables of the task are added to it.

    Raises:
        InvalidSpec: further arguments or task settings are given, which belong in the manifest.
    """
    own = TrainJobManifest.model_fields
    defaults = {**CustomTrainer.model_fields, **TrainJob.model_fields}
    beside = {name: value for name, value in arguments.items() if _is_given(name, value)}
    problems = [
        Problem(name, "given", "write it into the manifest")
        for name, value in beside.items()
        if name not in own and not (name in defaults and value == defaults[name].default)
    ]
    variables = _merge_environment(task_config, {})
    plain = {name: value for name, value in variables.items() if isinstance(value, str)}
    on_task = {
        "resources": task_settings.resources(task_config),
        "placement": task_settings.placement(task_config),
        "volumes": task_settings.volumes(task_config),
        "secrets": len(plain) < len(variables),
    }
    problems += [
        Problem(name, "set on the task", "write it into the manifest") for name, value in on_task.items() if value
    ]
    if problems:
        raise InvalidSpec(problems)
    given = {name: value for name, value in beside.items() if name in own}
    job = TrainJobManifest(**{**given, "manifest": _with_whole_numbers(arguments["manifest"])})
    return add_env(job, plain)


def _collect_fields(
    arguments: Mapping[str, Any], task_config: TaskConfig | None, *, keep_mount: bool = False
) -> dict[str, Any]:
    """Return the given arguments, with the task's environment, placement and volumes.

    Args:
        arguments: arguments of the component by name.
        task_config: settings of the task.
        keep_mount: whether the volume of the workspace is also mounted at its own path, which the command may use.
    """
    given = {name: _with_whole_numbers(value) for name, value in arguments.items() if _is_given(name, value)}
    if environment := _merge_environment(task_config, given.get("env", {})):
        given["env"] = environment
    if placement := task_settings.merge_placement(task_config, given.get("placement", {})):
        given["placement"] = placement
    if "output_path" in given:  # may be the output of a fine-tuning, which has the whole path
        given["output_path"] = f"{given['output_path']}/".removeprefix(f"{OUTPUT_FOLDER}/")
    found = _workspace_and_volumes(given.get("workspace", ""), task_config, keep_mount)
    if volumes := [*found.pop("volumes", ()), *given.get("volumes", ())]:
        given["volumes"] = volumes
    return given | found


def _collect_fields_and_resources(arguments: Mapping[str, Any], task_config: TaskConfig | None) -> dict[str, Any]:
    """Return the given arguments of a step with `resources`, with the task's settings."""
    given = _collect_fields(arguments, task_config)
    return given | _merge_resources("resources", given, task_config)


def _is_given(name: str, value: Any) -> bool:
    """Return whether an argument is given; an empty text, list or dict and 0 are not."""
    is_empty = not value or is_empty_text(name, value)
    return not is_empty or (value is not None and name in _EMPTY_IS_A_VALUE)


def _merge_environment(task_config: TaskConfig | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's environment with the component's `env`, which has precedence."""
    if omitted := sorted(task_settings.proxy_variables(task_config) - own.keys()):
        names = ", ".join(omitted)
        print_line(f"The TrainJob's pods do not get the task's {names}. To set them there, use the component's `env`.")
    return {**task_settings.environment(task_config), **own}


def _workspace_and_volumes(workspace: str, task_config: TaskConfig | None, keep_mount: bool) -> dict[str, Any]:
    """Return workspace and volumes.

    If the workspace is a path, it means the claim that is mounted there, or else a folder of this machine.
    """
    mounted = task_settings.volumes(task_config)
    found: dict[str, Any] = {}
    if workspace.startswith("/"):
        if os.environ.get(POD_VARIABLE) or mounted:
            found["workspace"], mount = task_settings.find_mounted_workspace(workspace, mounted)
            mounted = mounted if keep_mount else tuple(volume for volume in mounted if volume is not mount)
        else:
            found["workspace"] = WorkspaceVolume(node_path=_create_local_folder(workspace))
    return found | ({"volumes": mounted} if mounted else {})


def _create_local_folder(path: str) -> str:
    """Return a folder of this machine, which is the node of the laptop cluster.

    The folder is created if it does not exist, like a missing folder of a claim.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSpec(Problem("workspace", repr(path), f"it must be a folder: {error.strerror}")) from None
    return path


def _merge_resources(name: str, arguments: Mapping[str, Any], task_config: TaskConfig | None) -> dict[str, Any]:
    """Return the resources of task and arguments under this name; empty if there are none.

    A resource in the arguments overrides the same resource of the task.
    """
    found = task_settings.merge_resources(task_config, _with_whole_numbers(arguments.get(name) or {}))
    return {name: found} if found else {}


def _with_whole_numbers(value: Any) -> Any:
    """Return a value in which floats without a fraction are integers again.

    `kfp.local` 2.17 converts every number in a list or dict to a float. On a cluster, 2 stays 2.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    return [_with_whole_numbers(item) for item in value] if isinstance(value, list) else value

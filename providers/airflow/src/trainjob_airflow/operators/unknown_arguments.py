"""Errors about arguments that neither an operator nor Airflow's `BaseOperator` has."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from airflow.sdk import BaseOperator

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec.base import invalid_field

ARGUMENT_NAMES = {"queue": "queue_name"}
"""Names of the operators' arguments by the fields of the step, if they differ."""
_AIRFLOW_RESOURCES = ("cpus", "ram", "disk", "gpus")  # fields of `airflow.sdk.definitions._internal.resources`


def _list_arguments(operator: type[Any]) -> Collection[str]:
    """Return the names of the arguments of a class and of its base classes."""
    constructors = [vars(base)["__init__"] for base in operator.__mro__[:-1] if "__init__" in vars(base)]
    return dict.fromkeys(name for each in constructors for name in inspect.signature(each).parameters)


@cache
def _list_airflow_arguments() -> Collection[str]:
    return _list_arguments(BaseOperator)


def check_argument_names(operator: type[Any], step_type: type[Any], task_arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that do not exist, with the argument that may be meant.

    Args:
        operator: class of the operator.
        step_type: class of `trainjob.spec` that receives the step's arguments.
        task_arguments: the arguments for `BaseOperator`.

    Raises:
        InvalidSpec: there is no argument of such a name, `resources` has other keys than Airflow's, or `queue` is no
            text.
    """
    unknown = [name for name in task_arguments if name not in _list_airflow_arguments()]
    resources = task_arguments.get("resources")
    if isinstance(resources, Mapping) and not resources.keys() <= {*_AIRFLOW_RESOURCES}:
        unknown.append("resources")
    problems = [_describe(name, operator, step_type) for name in unknown]
    if not isinstance(task_arguments.get("queue", ""), str):
        rule = "it selects the Airflow workers of the task, by a text: queue_name= is the Kueue queue"
        problems.append(invalid_field("queue", task_arguments["queue"], rule).problems[0])
    if problems:
        raise InvalidSpec(problems)


def _describe(name: str, operator: type[Any], step_type: type[Any]) -> Problem:
    from trainjob.spec.problems import describe_unknown_argument

    known = _list_arguments(operator)
    return describe_unknown_argument(name, "argument", operator.__name__, known, step_type, ARGUMENT_NAMES)

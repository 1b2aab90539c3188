"""Generator of the operators of the Airflow provider: signatures, docstrings and template fields.

What an operator does besides passing its arguments on is in its base class in `trainjob_airflow.operators`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.parameters.docstrings import format_entries, wrap_paragraphs
from tools.parameters.fields import Field, list_fields
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

PATH = Path("providers/airflow/src/trainjob_airflow/operators/steps.py")
ARGUMENT_NAMES = {"queue": "queue_name"}
"""Names of arguments whose field has a name that Airflow's `BaseOperator` uses for another argument."""
_ATTRIBUTE_NAMES = {"on_kill": "on_kill_action", "on_failure": "on_failure_action", "resources": "step_resources"}
_TYPES = {
    "text": "str",
    "boolean": "bool",
    "integer": "int | str",
    "number": "float | str",
    "duration": "timedelta | float | str",
    "texts": "Sequence[str]",
    "list": "Sequence[Any]",
    "mapping": "Mapping[str, Any]",
    "function": "Callable[..., Any] | str",
    "workspace": "Workspace | WorkspaceVolume | str",
}
# What differs from the field's description.
_NOTES = {
    "queue": "Airflow's own `queue` selects workers",
    "workspace": "It is a `Workspace`, the name of an existing PVC, or a `trainjob.WorkspaceVolume`",
}


@dataclass(frozen=True)
class _Operator:
    """An operator: the class of its step, its base class, and the beginning of its docstring."""

    step: type[Any]
    base: str
    text: str
    more: tuple[Field, ...] = ()


_MANIFEST = Field(
    "manifest",
    "object",
    None,
    required=False,
    description="a whole TrainJob, which replaces all arguments about its content. It is a dict, or the name of a YAML "
    "or JSON file beside the DAG's file; both may have templates. The names of the created TrainJobs begin with the "
    "manifest's name",
)
_SKIP_DOWNSTREAM = Field(
    "skip_downstream",
    "boolean",
    True,
    required=False,
    description="whether the tasks directly after this one are skipped if a gate fails",
)
MORE_FIELDS = {"TrainJobOperator": _MANIFEST, "EvaluateOperator": _SKIP_DOWNSTREAM}
"""Arguments that are no fields of a step, by their operator."""
_FETCHED = "The XCom also has `uri`, `revision`, `files` and `bytes` of the fetched {}, as far as the log reports them."
_OPERATORS: Mapping[str, _Operator] = {
    "InitializeDatasetOperator": _Operator(
        InitializeDataset,
        "FetchOperator",
        f"Fetch a dataset into `/workspace/dataset`.\n\n{_FETCHED.format('dataset')}",
    ),
    "InitializeModelOperator": _Operator(
        InitializeModel, "FetchOperator", f"Fetch a model into `/workspace/model`.\n\n{_FETCHED.format('model')}"
    ),
    "FineTuneOperator": _Operator(
        FineTune,
        "StepOperator",
        "Fine-tune `/workspace/model` on `/workspace/dataset` with a training framework.\n\n"
        "The class of `config` determines the framework. The checkpoints are written to `/workspace/output`.",
    ),
    "ExportModelOperator": _Operator(
        ExportModel,
        "ExportOperator",
        "Create a Hugging Face folder from the final checkpoint, and send it to its destination.\n\n"
        "The XCom also has the model's `location` and what the export's log reports about it, such as `digest`, "
        "`metrics` and `bytes`.",
    ),
    "EvaluateOperator": _Operator(
        Evaluate,
        "EvaluationOperator",
        "Score a model with tasks, held-out rows or a function, and compare it with a champion.\n\n"
        "If a gate fails, the task succeeds, and the tasks directly after it are skipped, unless `skip_downstream` is "
        "False. The XCom also has `passed`, `scores`, `champion_scores`, `differences`, `gates` and `report`, and a "
        "`summary` of them in Markdown.",
    ),
    "GenerateOperator": _Operator(
        Generate,
        "GenerationOperator",
        "Generate an answer for each row of a dataset, on one or several nodes.\n\n"
        "The XCom also has `rows`, `shards`, `tokens`, `seconds`, `tokens_per_second`, and `output`, the file's path.",
    ),
    "PromoteOperator": _Operator(
        Promote,
        "PromotionOperator",
        "Make a model the served one, or leave the one that is served now.\n\n"
        "The XCom also has `promoted`, `model`, `before` and `reason`.",
    ),
    "RollbackOperator": _Operator(
        Rollback,
        "PromotionOperator",
        "Undo a promotion: the model before is served again.\n\n"
        "The XCom also has `rolled_back`, `model`, `before` and `reason`.",
    ),
    "TrainJobOperator": _Operator(
        TrainJob,
        "ManifestOperator",
        "Run a TrainJob with any trainer on any runtime, or from a complete manifest.\n\n"
        "The XCom also has `result` if the training's code returned a value.",
        (_MANIFEST,),
    ),
}
_HEADER = '''"""Operators for the steps of a fine-tuning chain, and for any TrainJob.

Written by tools/parameters from the classes in `trainjob.spec`: run `make reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainjob.spec import {steps}
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.step_bases import (
    EvaluationOperator,
    ExportOperator,
    FetchOperator,
    GenerationOperator,
    ManifestOperator,
    PromotionOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from trainjob.spec import {types}
    from trainjob_airflow.operators.workspace import Workspace
'''


def render_operators() -> str:
    """Return the module with the operators."""
    steps = ", ".join(sorted(each.step.__name__ for each in _OPERATORS.values()))
    fields = [field for each in _OPERATORS.values() for field in _list_fields(each)]
    types = {each.__name__ for field in fields if field.kind in ("object", "workspace") for each in field.classes}
    header = _HEADER.format(steps=steps, types=", ".join(sorted(types)))
    return "\n\n".join([header, *(_render_operator(name, each) for name, each in _OPERATORS.items())])


def list_arguments(step: type[Any]) -> list[str]:
    """Return the names of the arguments of a step's operator; empty if there is none."""
    return [_get_argument(field) for each in _OPERATORS.values() if each.step is step for field in _list_fields(each)]


def _list_fields(operator: _Operator) -> list[Field]:
    return [*list_fields(operator.step), *operator.more]


def _render_operator(name: str, operator: _Operator) -> str:
    fields = _list_fields(operator)
    # Airflow would call a function in a template field, and render the text of one.
    rendered = [each for each in fields if each.kind != "function"]
    attributes = [_ATTRIBUTE_NAMES.get(each.name, _get_argument(each)) for each in rendered]
    lines = [
        f"class {name}({operator.base}):",
        *_indent(f'"""{wrap_paragraphs(operator.text)}\n"""', 4),
        "",
        f"    step_type = {operator.step.__name__}",
        f"    template_fields: Sequence[str] = ({', '.join(map(repr, attributes))}, *StepOperator.template_fields)",
        "",
        "    def __init__(",
        "        self,",
        "        *,",
        *(f"        {_render_parameter(each)}," for each in fields),
        "        **arguments: Any,",
        "    ) -> None:",
        *_indent(_render_docstring(fields), 8),
        "        super().__init__(step_arguments={",
        *(f"            {each.name!r}: {_get_argument(each)}," for each in fields),
        "        }, **arguments)",
        "",
    ]
    return "\n".join(lines)


def _get_argument(field: Field) -> str:
    return ARGUMENT_NAMES.get(field.name, field.name)


def _render_parameter(field: Field) -> str:
    kind = _get_type(field)
    if field.required:
        return f"{_get_argument(field)}: {kind}"
    return f"{_get_argument(field)}: {kind} | None = None"


def _get_type(field: Field) -> str:
    """Return the type of an argument.

    A dict can replace each object, and a text too, because it may be a template.
    """
    if field.kind == "object":
        return " | ".join([*(each.__name__ for each in field.classes), "Mapping[str, Any]", "str"])
    return _TYPES[field.kind]


def _render_docstring(fields: list[Field]) -> str:
    arguments = format_entries({_get_argument(each): _describe(each) for each in fields}, indent=8)
    return (
        '"""Create the operator; `StepOperator` describes further arguments.\n\n'
        f"Args:\n{arguments}\n"
        "    **arguments: arguments of `StepOperator` and `BaseOperator`.\n\n"
        "Raises:\n    InvalidSpec: an argument has a wrong value, is missing, or does not exist.\n"
        '"""'
    )


def _describe(field: Field) -> str:
    note = _NOTES.get(field.name)
    return f"{field.full_description} {note}." if note else field.full_description


def _indent(text: str, spaces: int) -> list[str]:
    return textwrap.indent(text, " " * spaces).splitlines()

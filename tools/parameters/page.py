"""Generator of docs/reference/parameters.md: all parameters, with their names in Python, YAML, Airflow and KFP."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.parameters import components, operators
from tools.parameters.fields import Field, list_fields, parse_entries
from trainjob.framework_modules import GROUP, list_own_frameworks
from trainjob.spec import (
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    PodSecurityContext,
    Promote,
    Rollback,
    SecurityContext,
    TrainJob,
    TrainJobManifest,
)
from trainjob.spec.base import Spec

PATH = Path("docs/reference/parameters.md")
_BASE_OPERATOR = Path(__file__).resolve().parents[2] / operators.PATH.parent / "base.py"
_STEPS = (InitializeDataset, InitializeModel, FineTune, ExportModel, Evaluate, Generate, Promote, Rollback, TrainJob)
_KINDS = {
    "text": "text",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "duration": "duration",
    "texts": "list of texts",
    "integers": "integer or list of integers",
    "list": "list",
    "mapping": "mapping",
    "function": "Python function",
    "object": "object",
    "workspace": "name of a PVC, or object",
}
_MANIFEST = (
    "In a file it is the TrainJob itself, in Airflow the argument `manifest` of `TrainJobOperator`, and in Kubeflow "
    "Pipelines the input `manifest` of `train`."
)
_INTRODUCTION = """# Parameters

<!-- Written by tools/parameters: run `make reference`. -->

Look up every parameter of the steps with its name in Airflow, Kubeflow Pipelines, YAML and Python. The page is also the
reference of the [YAML files](command.md#files) of `trainjob run`. There, `step:` has the name of a class below, and the
other keys are its fields.

A parameter has the same name everywhere. The only exception is `queue_name` of the operators, because `queue` of every
Airflow operator selects its workers.

* **Duration**: a text such as `6h`, `90m` or `PT6H`, or a number of seconds; in Python also a `timedelta`.
* **Object**: an instance of the [class](#objects) or a dict of its fields in Python and Airflow. In YAML it is a
  mapping, in Kubeflow Pipelines a dict. A text for a `Queue`, `Runtime`, `SecretReference` or `WorkspaceVolume` means
  the name.
* Retries after a failure belong to the engine: `retries` of Airflow's operators, `attempts` of the components. A retry
  after an interruption by the infrastructure is `interruption_retries` everywhere.
* In Kubeflow Pipelines, a value that is empty or 0 is not given. Settings of the task, such as
  `set_accelerator_limit`, apply to the pods, too ([Components](components.md)).
"""


def render_page() -> str:
    """Return the page."""
    sections = [_INTRODUCTION, "## Every step\n", *_render_shared()]
    for step in _STEPS:
        sections += [f"## {step.__name__}\n", f"{_first_line(step)}\n", *_render_step(step)]
    sections += ["## TrainJobManifest\n", f"{_first_line(TrainJobManifest)} {_MANIFEST}\n"]
    sections += _render_fields(TrainJobManifest)
    sections += ["## Only in Airflow\n", *_render_operator_arguments()]
    sections += ["## Only in Kubeflow Pipelines\n", *_render_inputs()]
    objects = _list_objects()
    sections += ["## Objects\n", *_render_objects(objects)]
    modules = (importlib.import_module(f"{GROUP}.{name}.framework") for name in list_own_frameworks())
    configs = [module.FRAMEWORK.config_class for module in modules]
    sections += ["## Configurations of the frameworks\n", *_render_objects(configs)]
    nested = [each for each in _find_objects(configs) if each not in (*objects, *configs)]
    sections += _render_objects(nested)
    return "\n".join(sections).rstrip("\n") + "\n"


def _render_shared() -> Iterator[str]:
    shared = [each for each in list_fields(FineTune) if each.is_shared]
    yield from _render_table(FineTune, shared)


def _render_step(step: type[Spec]) -> Iterator[str]:
    yield from _render_table(step, [each for each in list_fields(step) if not each.is_shared])


def _render_table(step: type[Spec], fields: Sequence[Field]) -> Iterator[str]:
    of_operator, of_component = operators.list_arguments(step), components.list_inputs(step)
    yield "| Python, YAML | Airflow | Kubeflow Pipelines | Type | Meaning |\n|---|---|---|---|---|"
    for each in fields:
        in_airflow = operators.ARGUMENT_NAMES.get(each.name, each.name)
        names = [f"`{each.name}`", _in(in_airflow, of_operator), _in(each.name, of_component)]
        yield _format_row(*names, _format_kind(each), each.full_description)
    yield ""


def _in(name: str, names: Sequence[str]) -> str:
    return f"`{name}`" if name in names else ""


def _render_operator_arguments() -> Iterator[str]:
    """Yield the arguments of operators that are no fields of a step."""
    [base] = [
        node
        for node in ast.parse(_BASE_OPERATOR.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "StepOperator"
    ]
    [constructor] = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    section = re.split(r"\n\n?Args:\n|\n\nRaises:\n", inspect.cleandoc(ast.get_docstring(constructor) or ""))[1]
    described = parse_entries(textwrap.dedent(section))
    yield "| Argument | Meaning |\n|---|---|"
    for name, text in described.items():
        if name not in ("step_arguments", "task_arguments"):
            yield _format_row(f"`{name}`", text)
    for operator, each in operators.MORE_FIELDS.items():
        yield _format_row(f"`{each.name}` of `{operator}`", each.full_description)
    yield ""


def _render_inputs() -> Iterator[str]:
    yield "| Component | Input | Type | Meaning |\n|---|---|---|---|"
    for component, fields in components.list_own_inputs().items():
        for each in fields:
            yield _format_row(component, f"`{each.name}`", _format_kind(each), each.full_description)
    yield ""


def _render_objects(classes: Sequence[type[Spec]]) -> Iterator[str]:
    for each in classes:
        yield f"### {each.__name__}\n"
        yield f"{_first_line(each)}\n"
        yield from _render_fields(each)


def _render_fields(owner: type[Spec]) -> Iterator[str]:
    yield "| Field | Type | Meaning |\n|---|---|---|"
    for field in list_fields(owner):
        required = " Required." if field.required else ""
        yield _format_row(f"`{field.name}`", _format_kind(field), f"{field.full_description}{required}")
    yield ""


def _list_objects() -> list[type[Spec]]:
    known = _find_objects(_STEPS)
    return sorted({*known, PodSecurityContext, SecurityContext}, key=lambda each: each.__name__)


def _find_objects(owners: Sequence[type[Spec]]) -> list[type[Spec]]:
    """Return the classes of values in some classes, without the base of configurations."""
    found: list[type[Spec]] = []
    waiting = list(owners)
    while waiting:
        for field in list_fields(waiting.pop(0)):
            new = [each for each in field.classes if each not in found and each.__name__ != "FrameworkConfig"]
            found += new
            waiting += new
    return found


def _format_kind(field: Field) -> str:
    names = " or ".join(f"[`{each.__name__}`](#{each.__name__.lower()})" for each in field.classes)
    if field.kind == "object" and names and field.name != "config":
        return names
    if field.kind in ("list", "mapping") and names:
        return f"{_KINDS[field.kind]} of {names}" if field.kind == "list" else _KINDS["mapping"]
    return _KINDS[field.kind]


def _first_line(owner: type[Any]) -> str:
    return re.sub(r"\[([\w.]*)\]\[\]", r"`\1`", inspect.cleandoc(owner.__doc__ or "").partition("\n")[0])


def _format_row(*cells: str) -> str:
    texts = (re.sub(r"\[([\w.]*)\]\[\]", r"`\1`", cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(text[:1].upper() + text[1:] for text in texts)} |"

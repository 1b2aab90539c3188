"""Extension of Griffe that documents the inputs and outputs of Kubeflow Pipelines components.

The function of a component has parameters that no author of a pipeline passes: the artifacts that it writes, and values
that Kubeflow Pipelines sets. This extension removes them from the signature, and lists the artifacts among the outputs.
"""

from __future__ import annotations

import ast
from typing import Any

import griffe

_DECORATOR = "trainjob_kfp.packaging.trainjob_component"
_SET_BY_KFP = ("task_config", "status")


class ComponentSignatures(griffe.Extension):
    """Document the inputs and outputs of each component."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the signatures and docstrings of all components of a package."""
        for function in _functions(pkg):
            if any(str(each.callable_path) == _DECORATOR for each in function.decorators) and function.docstring:
                _document(function, function.docstring)


def _functions(module: griffe.Module) -> list[griffe.Function]:
    """Return all functions that the modules of a package define."""
    found = [member for member in module.members.values() if not member.is_alias and member.is_function]
    for member in module.members.values():
        if not member.is_alias and member.is_module:
            found += _functions(member)
    return found


def _document(function: griffe.Function, docstring: griffe.Docstring) -> None:
    """Replace the signature and the sections about parameters and results."""
    kinds = griffe.DocstringSectionKind
    artifacts = {each.name: _artifact_type(each.annotation) for each in function.parameters}
    artifacts = {name: kind for name, kind in artifacts.items() if kind}
    hidden = {*artifacts, *_SET_BY_KFP}
    types = {**artifacts, **_output_types(function.returns)}
    outputs: list[griffe.DocstringReturn] = []
    sections: list[Any] = []
    for section in docstring.parsed:
        if section.kind is kinds.parameters:
            outputs = [_output(each, types) for each in section.value if each.name in artifacts]
            sections.append(griffe.DocstringSectionParameters([one for one in section.value if one.name not in hidden]))
        elif section.kind is kinds.returns:
            outputs += [_output(each, types) for each in section.value]
        else:
            sections.append(section)
    function.parameters = griffe.Parameters(*(each for each in function.parameters if each.name not in hidden))
    function.returns = None
    docstring.parsed = [*sections, griffe.DocstringSectionReturns(outputs, title="Outputs:")]


def _output(described: Any, types: dict[str, str]) -> griffe.DocstringReturn:
    name = described.name or str(described.annotation)
    return griffe.DocstringReturn(name=name, annotation=types.get(name), description=described.description)


def _artifact_type(annotation: Any) -> str:
    """Return the type of an output artifact, such as `dsl.Metrics`, else an empty text."""
    is_artifact = isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "dsl.Output"
    return str(annotation.slice) if is_artifact else ""


def _output_types(returns: Any) -> dict[str, str]:
    """Return the types in `NamedTuple("Outputs", [("name", type), ...])` by name."""
    call = ast.parse(str(returns), mode="eval").body
    if not (isinstance(call, ast.Call) and len(call.args) == 2 and isinstance(call.args[1], ast.List)):
        return {}
    pairs = [each.elts for each in call.args[1].elts if isinstance(each, ast.Tuple)]
    # Griffe reads strings in annotations as names.
    return {ast.unparse(name).strip("'"): ast.unparse(kind) for name, kind in pairs}

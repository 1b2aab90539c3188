"""Extension of Griffe that marks the arguments of operators in which Airflow renders templates.

The attribute `template_fields` of an operator's class names them. Griffe reads the sources without running them, so it
reads the tuples, also those of other classes and constants that a tuple includes.
"""

from __future__ import annotations

import ast
from typing import Any

import griffe

_MARK = " *Templated.*"


class TemplatedArguments(griffe.Extension):
    """Mark the templated arguments of each operator."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the docstrings of all operators of a package."""
        definitions = _definitions(pkg)
        for operator in (each for each in definitions.values() if isinstance(each, griffe.Class)):
            names = _template_fields(operator, definitions)
            for documented in (operator, operator.members.get("__init__")) if names else ():
                if documented is not None and not documented.is_alias and documented.docstring:
                    _mark(documented.docstring, names)


def _definitions(module: griffe.Module) -> dict[str, Any]:
    """Return the classes and the constants that the modules of a package define, by name."""
    found: dict[str, Any] = {}
    for name, member in module.members.items():
        if member.is_alias:
            continue
        if member.is_module:
            found |= _definitions(member)
        elif member.is_class or member.is_attribute:
            found[name] = member
    return found


def _mark(docstring: griffe.Docstring, names: set[str]) -> None:
    """Add the mark to the descriptions of the named arguments."""
    for section in docstring.parsed:
        for argument in section.value if section.kind is griffe.DocstringSectionKind.parameters else ():
            if argument.name in names:
                argument.description += _MARK


def _template_fields(operator: griffe.Class, definitions: dict[str, Any]) -> set[str]:
    """Return the template fields of a class or of the first base that has some."""
    fields = operator.members.get("template_fields")
    if fields is not None:
        return _read(ast.parse(str(fields.value), mode="eval").body, definitions)
    bases = [definitions.get(str(base).rpartition(".")[2]) for base in operator.bases]
    found = (_template_fields(base, definitions) for base in bases if isinstance(base, griffe.Class))
    return next(filter(None, found), set())


def _read(node: ast.expr, definitions: dict[str, Any]) -> set[str]:
    """Return the texts of a tuple, and of the tuples that it includes."""
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    if isinstance(node, ast.Starred):
        return _read(node.value, definitions)
    if isinstance(node, ast.Tuple):
        return {name for element in node.elts for name in _read(element, definitions)}
    if isinstance(node, ast.GeneratorExp):  # all of another tuple except the names in its condition
        loop = node.generators[0]
        tests = [each for test in loop.ifs for each in ast.walk(test)]
        return _read(loop.iter, definitions) - {str(each.value) for each in tests if isinstance(each, ast.Constant)}
    if isinstance(node, ast.Attribute):  # Operator.template_fields
        operator = definitions.get(ast.unparse(node.value))
        return _template_fields(operator, definitions) if operator else set()  # a class of Airflow
    return _read(ast.parse(str(definitions[ast.unparse(node)].value), mode="eval").body, definitions)

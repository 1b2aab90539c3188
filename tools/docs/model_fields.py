"""Extension of Griffe that documents the fields of pydantic models.

Griffe reads the sources without running them, so it does not know that the fields of a model are the arguments of its
constructor. This extension adds the constructor of each subclass of `trainjob.spec.base.Spec`. It turns the section
`Attributes` of the class into a section `Parameters`, with the types and defaults of the fields. Fields of base classes
are included.
"""

from __future__ import annotations

import copy
from typing import Any

import griffe

_MODEL = "trainjob.spec.base.Spec"
# Types that add rules for pydantic to their first argument.
_WRAPPERS = ("typing.Annotated", "pydantic.InstanceOf", "pydantic.SerializeAsAny")


class ModelFields(griffe.Extension):
    """Document the fields of each model as parameters."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the docstrings of all models of a package."""
        models = [each for each in _classes(pkg) if any(base.canonical_path == _MODEL for base in _bases(each))]
        parameters = {model.path: _document_fields(model) for model in models}  # before the docstrings are changed
        for model in models:
            _replace_attributes(model, parameters[model.path])
            _add_constructor(model, parameters[model.path])


def _classes(scope: griffe.Module | griffe.Class) -> list[griffe.Class]:
    """Return all classes that a package defines."""
    found = []
    for member in scope.members.values():
        if not member.is_alias and (member.is_class or member.is_module):
            found += [*([member] if member.is_class else []), *_classes(member)]
    return found


def _bases(model: griffe.Class) -> list[griffe.Class]:
    """Return the base classes that Griffe has loaded, the nearest first."""
    try:
        return model.mro()
    except ValueError:  # a base class of a package that is not loaded
        return []


def _document_fields(model: griffe.Class) -> list[griffe.DocstringParameter]:
    """Return the fields of a model and of its bases, those of the model first.

    A field without a description in a docstring is omitted, such as the discriminator of a union.
    """
    classes = [model, *_bases(model)]
    fields: dict[str, griffe.DocstringParameter] = {}
    for each in classes:
        for section in each.docstring.parsed if each.docstring else ():
            for described in section.value if section.kind is griffe.DocstringSectionKind.attributes else ():
                definition = next(
                    (one.members[described.name] for one in classes if described.name in one.members), None
                )
                if described.name in fields or definition is None or "instance-attribute" not in definition.labels:
                    continue
                fields[described.name] = griffe.DocstringParameter(
                    name=described.name,
                    description=described.description,
                    annotation=_resolve_type(definition.annotation),
                    value=_default(definition.value),
                )
    return sorted(fields.values(), key=lambda field: field.value is not None)  # the required fields first


def _replace_attributes(model: griffe.Class, fields: list[griffe.DocstringParameter]) -> None:
    """Replace the section `Attributes` of a docstring by `Parameters`, or add that section."""
    if model.docstring is None or not fields:
        return
    names = {field.name for field in fields}
    sections = []
    for section in model.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.attributes:
            others = [each for each in section.value if each.name not in names]
            sections += [griffe.DocstringSectionAttributes(others)] if others else []
        else:
            sections.append(section)
    model.docstring.parsed = [*sections, griffe.DocstringSectionParameters(fields)]


def _add_constructor(model: griffe.Class, fields: list[griffe.DocstringParameter]) -> None:
    """Add the constructor, which Griffe uses for the signature of a class."""
    keyword_only = griffe.ParameterKind.keyword_only
    constructor = griffe.Function(
        "__init__",
        parameters=griffe.Parameters(
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword),
            *(
                griffe.Parameter(each.name, annotation=each.annotation, kind=keyword_only, default=each.value)
                for each in fields
            ),
        ),
        parent=model,
    )
    model.set_member("__init__", constructor)


def _default(value: Any) -> Any:
    """Return the default of a field, or None if the field is required."""
    if not (isinstance(value, griffe.ExprCall) and value.canonical_path == "pydantic.Field"):
        return value
    options = {each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)}
    if "default_factory" not in options:
        return options.get("default")
    factory = options["default_factory"]
    if isinstance(factory, griffe.ExprLambda):
        return factory.body
    return {"dict": "{}"}.get(str(factory)) or griffe.ExprCall(factory, [])


def _resolve_type(expression: Any) -> Any:
    """Return a type without rules for pydantic, and with the types that aliases stand for."""
    if isinstance(expression, griffe.ExprName):
        definition = _find_definition(expression)
        return expression if definition is None else _resolve_type(definition)
    if isinstance(expression, griffe.ExprSubscript) and expression.canonical_path in _WRAPPERS:
        inner = expression.slice
        return _resolve_type(inner.elements[0] if isinstance(inner, griffe.ExprTuple) else inner)
    if not isinstance(expression, griffe.Expr):
        return expression
    changed = copy.copy(expression)
    for name in ("left", "right", "slice"):
        if isinstance(getattr(changed, name, None), griffe.Expr) and not (
            name == "left" and isinstance(changed, griffe.ExprSubscript)
        ):
            setattr(changed, name, _resolve_type(getattr(changed, name)))
    if isinstance(changed, griffe.ExprTuple):
        changed.elements = [_resolve_type(each) for each in changed.elements]
    return changed


def _find_definition(name: griffe.ExprName) -> Any:
    """Return the value of a type alias of this project; None for any other name."""
    scope = name.parent
    if not isinstance(scope, griffe.Object) or not name.canonical_path.startswith("trainjob"):
        return None
    try:
        found = scope.modules_collection[name.canonical_path]
        found = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None
    return found.value if found.is_attribute else None

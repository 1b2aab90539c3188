"""Problems of a request, in words: pydantic's errors with our own sentences, and suggestions for unknown fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trainjob.credentials import redact_credentials
from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.spec.credential_rules import redact_tokens

_MAX_SHOWN_LENGTH = 80
_MAX_LISTED_FIELDS = 12
# Values under these names may be credentials: they are never shown.
_SECRET_NAME = re.compile(r"token|secret|password|credential|access_key|api_key", re.IGNORECASE)
REDACTED = "***"
SEARCH_ADVICE = (
    "a TrainJob has no search: run one TrainJob for each value, see "
    "https://github.com/trainjob/trainjob/blob/main/docs/how-to/sweeps.md"
)
"""Advice for what the OptimizerClient of the Kubeflow SDK takes."""
# The same setting of the operators and of the components.
_ENGINES_RETRIES = {"attempts": "retries", "retries": "attempts"}
_TEMPLATE_ADVICE = "it is a template, and no template is rendered"
_NUMBER, _TEXT, _LIST, _DICT = "it must be a number", "it must be a text", "it must be a list", "it must be a dict"
_WHOLE_NUMBER, _BOOLEAN = "it must be a whole number", "it must be true or false"
# By the type of pydantic's error (pydantic 2.10 to 2.12); the fields are those of the error's context.
_RULES = {
    **dict.fromkeys(("bool_type", "bool_parsing"), _BOOLEAN),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _WHOLE_NUMBER),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    "finite_number": "it must be a finite number",
    "string_type": _TEXT,
    **dict.fromkeys(("list_type", "tuple_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type"), _DICT),
    "greater_than": "it must be greater than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be at most {le}",
    **dict.fromkeys(("literal_error", "enum"), "it must be {expected}"),
    "string_too_short": "it must have at least {min_length} characters",
    "string_too_long": "it must have at most {max_length} characters",
    "too_short": "it must have at least {min_length} items",
    "too_long": "it must have at most {max_length} items",
    **dict.fromkeys(("model_type", "model_attributes_type"), "give {model} or a dict of its fields"),
}


def to_invalid_spec(error: ValidationError, model: type[BaseModel]) -> InvalidSpec:
    """Return the `InvalidSpec` for a pydantic error.

    It has one problem for each broken rule: the field's path, its value unless it may be a credential, and the rule.

    Args:
        error: the error.
        model: the class of the request.
    """
    problems: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        cause = (detail.get("ctx") or {}).get("error")
        # The last part of these paths is the name of a field, however the user writes it.
        end = len(detail["loc"]) - (detail["type"] in ("extra_forbidden", "missing"))
        path = [part for n, part in enumerate(detail["loc"]) if n == end or not _is_union_branch(part)]
        location = tuple(f"[{part}]" if isinstance(part, int) else str(part) for part in path)
        if isinstance(cause, InvalidSpec):  # its paths are relative to the validator's own field
            found = [
                replace(each, field=_join((*location, each.field)), value=redact_tokens(each.value))
                for each in cause.problems
            ]
        else:
            found = [_to_problem(detail, location, model)]
        for problem in (_add_template_advice(each, model) for each in found):
            problems.setdefault(f"{problem.field}{problem.allowed}", problem)
    return InvalidSpec(list(problems.values()))


def _add_template_advice(problem: Problem, model: type[BaseModel]) -> Problem:
    if not has_template(problem.value) or _TEMPLATE_ADVICE in problem.allowed:
        return problem
    advice = f"{problem.allowed}; {_TEMPLATE_ADVICE} in a {model.__name__}: give a dict of its fields"
    return replace(problem, allowed=advice)


def _to_problem(detail: Mapping[str, Any], location: tuple[str, ...], model: type[BaseModel]) -> Problem:
    field, value = _join(location) or "request", detail["input"]
    if detail["type"] == "extra_forbidden":
        rule = _describe_unknown_field(location[-1], _find_model(model, location[:-1]))
        return Problem(field, format_value(field, value), rule, ProblemKind.UNKNOWN)
    if detail["type"] == "missing":
        return Problem(field, "nothing", "", ProblemKind.MISSING)
    context = {"message": f"{detail['msg'][0].lower()}{detail['msg'][1:]}", **(detail.get("ctx") or {})}
    wanted = _find_model(model, location)
    context["model"] = f"a {wanted.__name__}" if wanted else "an object"
    rule = _RULES.get(detail["type"], "{message}").format(**context)
    if is_search_space(value):
        return Problem(field, "a search space", SEARCH_ADVICE)
    return Problem(field, format_value(field, value), rule)


def has_template(text: str) -> bool:
    """Return whether a text has a template of Jinja, an expression or a statement."""
    return "{{" in text or bool(re.search(r"{%.*%}", text, re.DOTALL))


def is_search_space(value: object) -> bool:
    """Return whether a value is for the Kubeflow SDK's OptimizerClient: a range to search."""
    return hasattr(value, "feasible_space")


def _describe_unknown_field(name: str, model: type[BaseModel] | None) -> str:
    """Return the sentence about a field that a class does not have."""
    if model is None:
        return f"there is no field {name!r} here"
    if suggestion := suggest_field(name, model):
        return f"there is no field {name!r} in {model.__name__}; did you mean {suggestion}?"
    fields = model.model_fields
    listed = f"; its fields are {', '.join(fields)}" if len(fields) <= _MAX_LISTED_FIELDS else ""
    return f"there is no field {name!r} in {model.__name__}{listed}"


def suggest_field(name: str, model: type[BaseModel]) -> str:
    """Return the path of the field that an unknown name may mean; empty if there is none.

    It is what the class's `find_field` returns, a field of that name in the class of another field, or a field with a
    similar name.
    """
    find_field: Callable[[str], str] | None = getattr(model, "find_field", None)
    if find_field and (known := find_field(name)):
        return known
    for field, info in model.model_fields.items():
        inner = () if get_origin(info.annotation) in (list, tuple) else _list_models(info.annotation)
        if any(name in each.model_fields for each in inner):
            return f"{field}.{name}"
    return find_similar(name, model.model_fields)


def find_similar(name: str, known: Iterable[str]) -> str:
    """Return the most similar of the known names; empty if none is similar."""
    import difflib  # only errors need it

    return next(iter(difflib.get_close_matches(name, [*known], n=1, cutoff=0.75)), "")


def describe_unknown_argument(
    name: str,
    kind: str,
    owner: str,
    known: Collection[str],
    step: type[BaseModel] | None,
    renamed: Mapping[str, str],
) -> Problem:
    """Return the problem of an argument that an operator or a component does not have.

    Args:
        name: name of the argument.
        kind: what the owner calls it, such as `argument`.
        owner: name of the operator or component.
        known: names of the owner's arguments.
        step: class of the owner's step; None if it has none.
        renamed: names of the owner's arguments by the paths of the step's fields, if they differ.
    """
    path = _ENGINES_RETRIES.get(name) or (suggest_field(name, step) if step else "")
    first, dot, rest = path.partition(".")
    suggestion = renamed.get(path) or f"{renamed.get(first, first)}{dot}{rest}"
    if suggestion.partition(".")[0] not in known:
        suggestion = find_similar(name, known)
    advice = f"; did you mean {suggestion}?" if suggestion else ""
    return Problem(name, "given", f"there is no {kind} {name!r} in {owner}{advice}", ProblemKind.UNKNOWN)


def _find_model(model: type[BaseModel] | None, location: Sequence[str]) -> type[BaseModel] | None:
    """Return the class of the object at a path of fields; None if it is not only one."""
    for name in location:
        if not name.startswith("["):
            info = model.model_fields.get(name) if model else None
            inner = list(_list_models(info.annotation)) if info else []
            model = inner[0] if len(inner) == 1 else None
    return model


def _list_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of objects in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _list_models(part)


def _join(location: Sequence[str]) -> str:
    """Return the path of a field, such as `volumes[1].mount_path`."""
    return ".".join(part for part in location if part).replace(".[", "[")


def _is_union_branch(part: Any) -> bool:
    """Return whether a part of a field's path is a type of a union and not a field.

    Pydantic inserts the type that it tried, such as `function-before[...]` or `HuggingFace…`.
    """
    is_class = isinstance(part, str) and part[:1].isupper() and not part.isupper()  # not a variable, such as HF_TOKEN
    return is_class or (isinstance(part, str) and ("[" in part or part in ("str", "int", "is-instance", "callable")))


def format_value(field: str, value: Any) -> str:
    """Return a field's value for an error, shortened; `***` if it may be a credential."""
    *around, last = field.split(".")
    if "env" in (*around, last) or _SECRET_NAME.search(last):
        return REDACTED
    if isinstance(value, BaseModel | Mapping):
        return f"a {type(value).__name__}"
    try:
        text = redact_tokens(redact_credentials(repr(value)))
    except (RecursionError, ValueError):  # too deep, or a number with thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_LENGTH else text[: _MAX_SHOWN_LENGTH - 1] + "…"

"""Requests that people write into files: TrainJobs as for kubectl, and steps.

A step is `step: FineTune` and its fields, as in Python:

    step: FineTune
    model: llama3.2-1b
    workspace: tickets
    deadline: 6h
    config:
      epochs: 3
      peft_config: {lora_rank: 16}
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest.durations import duration
from trainjob.spec import Step, TrainJobManifest
from trainjob.spec.base import as_json, refuse
from trainjob.spec.yaml_text import documents, parsed

STEPS: Mapping[str, type[Step]] = {kind.__name__: kind for kind in get_args(Step)}
"""Values that `step` allows, with their classes."""
_WANTED = f"a TrainJob as for kubectl, with `kind: TrainJob`, or `step:` with one of {', '.join(STEPS)} and its fields"
_DURATIONS = ("deadline", "ttl_after_success", "ttl_after_failure")


def requests(text: str, origin: str, *, name: str = "") -> list[Step]:
    """Return the requests of a text in YAML or JSON, in its order.

    Args:
        text: any number of documents, each with `kind: TrainJob` or `step`.
        origin: name of the text in errors, such as a file's path.
        name: start of the only request's name; empty leaves the name as written.

    Raises:
        InvalidSpec: the text is empty, or a document breaks rules. The error lists each rule with the origin, the
            document's line and the field. Also raised if `name` is given and there are several documents.
    """
    found = list(documents(text))
    if not found:
        raise InvalidSpec(Problem(origin, "nothing", f"write {_WANTED}"))
    if name and len(found) > 1:
        raise refuse("--name", name, f"{origin} has {len(found)} documents: write each one's name into it")
    read: list[Step] = []
    problems: list[Problem] = []
    for line, document in found:
        where = f"{origin}:{line}" if len(found) > 1 else origin
        try:
            read.append(_request(as_json(parsed(document, first_line=line)), name))
        except InvalidSpec as error:
            problems += _placed(error, where)
    if problems:
        raise InvalidSpec(problems)
    return read


def _placed(error: InvalidSpec, where: str) -> Iterator[Problem]:
    for problem in error.problems:
        field = problem.field.removeprefix("manifest.")
        yield Problem(f"{where}: {field}" if field else where, problem.value, problem.allowed)


def _request(content: Any, name: str) -> Step:
    if isinstance(content, dict) and "step" in content:
        kind = _kind(content["step"])
        fields = {field: value for field, value in content.items() if field != "step"}
        return kind.of(_named(kind, fields, name) | _lengths(fields))
    if isinstance(content, dict) and "kind" in content:
        return TrainJobManifest.of({"manifest": _called(content, name)})
    raise refuse("", f"a {type(content).__name__}", f"write {_WANTED}")


def _kind(given: Any) -> type[Step]:
    if isinstance(given, str) and given in STEPS:
        return STEPS[given]
    close = difflib.get_close_matches(str(given), STEPS, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise refuse("step", given, f"{meant}there are {', '.join(STEPS)}")


def _named(kind: type[Step], fields: dict[str, Any], name: str) -> dict[str, Any]:
    if not name:
        return fields
    if kind is TrainJobManifest:
        return {**fields, "manifest": _called(fields.get("manifest"), name)}
    return {**fields, "name": name}


def _called(manifest: Any, name: str) -> Any:
    if not name or not isinstance(manifest, Mapping) or not isinstance(manifest.get("metadata") or {}, Mapping):
        return manifest
    return {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": name}}


def _lengths(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the duration fields that are texts, parsed as durations.

    A number is not changed; it counts seconds.
    """
    return {field: duration(fields[field], field) for field in _DURATIONS if isinstance(fields.get(field), str)}

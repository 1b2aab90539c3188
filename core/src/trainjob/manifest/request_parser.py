"""Requests that people write into files: TrainJobs and their runtimes as for kubectl, and steps.

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
from dataclasses import dataclass, replace
from typing import Any, get_args

from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest.runtime_documents import RUNTIME_KINDS, validate_runtime
from trainjob.spec import Step, TrainJobManifest
from trainjob.spec.base import invalid_field, to_json_value
from trainjob.spec.placeholders import describe_template
from trainjob.spec.yaml_documents import SourceDocument, parse_yaml, split_documents

STEP_CLASSES: Mapping[str, type[Step]] = {kind.__name__: kind for kind in get_args(Step)}
"""Values that `step` allows, with their classes."""
_EXPECTED_CONTENT = (
    f"a TrainJob as for kubectl, with `kind: TrainJob`, or `step:` with one of {', '.join(STEP_CLASSES)} and its fields"
)
_V1_GROUP = "kubeflow.org/"


@dataclass(frozen=True)
class Documents:
    """The content of a file of requests.

    Attributes:
        requests: the requests, in the order of the file.
        sources: the document of each request.
        runtimes: the TrainingRuntimes and ClusterTrainingRuntimes, in the order of the file.
    """

    requests: list[Step]
    sources: list[SourceDocument]
    runtimes: list[dict[str, Any]]


def parse_documents(text: str, origin: str, *, name: str = "") -> Documents:
    """Return the requests and training runtimes of a text in YAML or JSON.

    Args:
        text: any number of documents, each with `step`, `kind: TrainJob` or the kind of a training runtime. The items
            of a List count as documents.
        origin: name of the text in errors, such as a file's path.
        name: start of the only request's name; empty leaves the name as written.

    Raises:
        InvalidSpec: the text has no request, or a document breaks rules. The error lists each rule with the origin,
            the document's line and the field. Also raised if `name` is given and there are several requests.
    """
    read = Documents([], [], [])
    problems: list[Problem] = []
    for line, document in split_documents(text):
        source = SourceDocument(origin, line, document)
        try:
            content = to_json_value(parse_yaml(document, first_line=line))
        except InvalidSpec as error:
            advice = describe_template(document, line)
            problems += (replace(each, field=source.locate(), allowed=each.allowed + advice) for each in error.problems)
            continue
        for place, item in _list_items(content):
            problems += _add_item(read, item, name, replace(source, place=place))
    if problems:
        raise InvalidSpec(problems)
    if not read.requests and read.runtimes:
        advice = "apply them with `kubectl apply -f FILE`, or add a TrainJob that needs them"
        raise InvalidSpec(Problem(origin, "training runtimes alone", advice))
    if not read.requests:
        raise InvalidSpec(Problem(origin, "empty", f"write {_EXPECTED_CONTENT}"))
    if name and len(read.requests) > 1:
        raise invalid_field(
            "--name", name, f"{origin} has {len(read.requests)} requests: write the name into each document"
        )
    return read


def _list_items(content: Any) -> list[tuple[str, Any]]:
    """Return the items of a List, or the object itself, each with its path in the document."""
    items = content.get("items") if isinstance(content, dict) and str(content.get("kind")).endswith("List") else None
    return [(f"items[{n}]", item) for n, item in enumerate(items)] if isinstance(items, list) else [("", content)]


def _add_item(read: Documents, item: Any, name: str, source: SourceDocument) -> list[Problem]:
    """Add a request or a training runtime to what was read, or return its problems."""
    try:
        if isinstance(item, dict) and item.get("kind") in RUNTIME_KINDS:
            read.runtimes.append(validate_runtime(item))
        else:
            read.requests.append(_parse_request(item, name))
            read.sources.append(source)
    except InvalidSpec as error:
        return list(_add_origin(error, source))
    return []


def _add_origin(error: InvalidSpec, source: SourceDocument) -> Iterator[Problem]:
    """Yield the problems of a document with its file and the lines of the fields."""
    for problem in error.problems:
        field = problem.field.removeprefix("manifest.")
        where = source.locate(field, problem.field)
        yield replace(problem, field=f"{where}: {field}" if field else where)


def _parse_request(content: Any, name: str) -> Step:
    if isinstance(content, dict) and "step" in content:
        kind = _get_step_class(content["step"])
        fields = {field: value for field, value in content.items() if field != "step"}
        return kind.from_object(_set_name(kind, fields, name))
    if is_v1_job(content):
        advice = "it is a job of the Training Operator v1: convert it with `trainjob migrate convert FILE`"
        raise invalid_field("kind", content["kind"], advice)
    if isinstance(content, dict) and "kind" in content:
        return TrainJobManifest.from_object({"manifest": _set_manifest_name(content, name)})
    raise invalid_field("", f"a {type(content).__name__}", f"write {_EXPECTED_CONTENT}")


def is_v1_job(document: Any) -> bool:
    """Return whether an object is a job of the Training Operator or of the MPI Operator.

    Any kind counts that ends in `Job`. Both operators have the API group `kubeflow.org`, like other parts of Kubeflow
    (Notebook, Profile). A TrainJob has another group; it had this one in drafts of its API.
    """
    if not isinstance(document, Mapping):
        return False
    version, kind = document.get("apiVersion"), document.get("kind")
    is_job = isinstance(kind, str) and kind.endswith("Job") and kind != "TrainJob"
    return is_job and isinstance(version, str) and version.startswith(_V1_GROUP)


def _get_step_class(name: Any) -> type[Step]:
    if isinstance(name, str) and name in STEP_CLASSES:
        return STEP_CLASSES[name]
    close = difflib.get_close_matches(str(name), STEP_CLASSES, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise invalid_field("step", name, f"{meant}allowed are {', '.join(STEP_CLASSES)}")


def _set_name(kind: type[Step], fields: dict[str, Any], name: str) -> dict[str, Any]:
    if not name:
        return fields
    if kind is TrainJobManifest:
        return {**fields, "manifest": _set_manifest_name(fields.get("manifest"), name)}
    return {**fields, "name": name}


def _set_manifest_name(manifest: Any, name: str) -> Any:
    if not name or not isinstance(manifest, Mapping) or not isinstance(manifest.get("metadata") or {}, Mapping):
        return manifest
    return {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": name}}

"""Training runtimes that people write into files, beside the TrainJobs that need them."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_document
from trainjob.spec.redaction import redact
from trainjob.spec.resources import parse_quantity
from trainjob.spec.trainer_versions import find_version_problems

RUNTIME_KINDS = ("TrainingRuntime", "ClusterTrainingRuntime")
"""Kinds of the documents that are training runtimes."""
_METADATA_KEYS = ("name", "namespace", "labels", "annotations")
_FRAMEWORK_LABEL = "trainer.kubeflow.org/framework"


def validate_runtime(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a training runtime after the checks that need no cluster.

    Raises:
        InvalidSpec: the document breaks a rule.
    """
    if problems := list(find_version_problems(document)):
        raise InvalidSpec(problems)
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise invalid_field("metadata.name", None, "a training runtime must have a name")
    if problems := list(_find_wrong_metadata(metadata)):
        raise InvalidSpec(problems)
    if not isinstance(document.get("spec"), Mapping):
        raise invalid_field("spec", document.get("spec"), "it must be a mapping")
    check_document(document)
    return dict(document)


def _find_wrong_metadata(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in metadata.items():
        field = f"metadata.{key}"
        if key not in _METADATA_KEYS:
            yield from invalid_field(field, value, "a new training runtime can't have this field: remove it").problems
        elif key in ("labels", "annotations") and not isinstance(value, Mapping | None):
            yield from invalid_field(field, value, "it must be a mapping").problems
        elif key == "namespace" and not isinstance(value, str):
            yield from invalid_field(field, value, "it must be a string").problems


def set_namespace(runtime: Mapping[str, Any], namespace: str, default_namespace: str) -> dict[str, Any]:
    """Return a runtime with its namespace; a ClusterTrainingRuntime has none.

    Args:
        runtime: the runtime.
        namespace: namespace that the user requests; may be empty.
        default_namespace: namespace if neither the user nor the runtime names one.

    Raises:
        InvalidSpec: the user requests another namespace than that of the runtime.
    """
    metadata = {key: value for key, value in runtime["metadata"].items() if value and key != "namespace"}
    if runtime["kind"] == "ClusterTrainingRuntime":
        return {**runtime, "metadata": metadata}
    own = runtime["metadata"].get("namespace")
    if own and namespace and own != namespace:
        rule = f"{namespace!r} is requested as the namespace, too: remove one of them"
        raise invalid_field("metadata.namespace", own, rule)
    return {**runtime, "metadata": {**metadata, "namespace": own or namespace or default_namespace}}


def find_differences(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return a unified diff of the specs, labels and annotations of two runtimes.

    Labels and annotations that only the existing runtime has do not count. `***` replaces possible secrets.

    Args:
        existing: the runtime as the API returns it.
        wanted: the other runtime, with the defaults of the API server.
    """
    parts = ("labels", "annotations")
    old, new = ({part: one["metadata"].get(part) or {} for part in parts} for one in (existing, wanted))
    old = {part: {key: value for key, value in old[part].items() if key in new[part]} for part in parts}
    before, after = {**old, "spec": existing.get("spec")}, {**new, "spec": wanted.get("spec")}
    if _normalize(before) == _normalize(after):
        return []
    texts = (_to_lines(redact(before)), _to_lines(redact(after)))
    lines = list(difflib.unified_diff(*texts, "in the cluster", "in the file", lineterm="", n=2))
    return lines or ["values that could be secrets differ"]


def _normalize(value: Any, *, is_amount: bool = False) -> Any:
    """Return a value as a controller writes it that reads an object and updates it.

    The Trainer adds a finalizer to each runtime (2.0 to 2.2). Go then writes empty `metadata` and `resources`, and
    `10m` instead of `0.01`.
    """
    if isinstance(value, Mapping):
        return {
            key: _normalize(inner, is_amount=key in ("limits", "requests")) if not is_amount else parse_quantity(inner)
            for key, inner in value.items()
            if inner is not None and not (key in ("metadata", "resources") and inner == {})
        }
    return [_normalize(inner) for inner in value] if isinstance(value, list) else value


def _to_lines(value: Any) -> list[str]:
    return json.dumps(value, indent=2, sort_keys=True).splitlines()


def format_apply_advice(runtime: Mapping[str, Any], file: str) -> str:
    """Return the advice to apply a runtime of a file with kubectl.

    The label selects the runtimes of the file, so that kubectl does not create its TrainJobs, too.
    """
    metadata = runtime["metadata"]
    namespace = f" -n {metadata['namespace']}" if metadata.get("namespace") else ""
    if _FRAMEWORK_LABEL in (metadata.get("labels") or {}) and file != "-":
        return f"kubectl apply{namespace} -f {shlex.quote(file)} -l {_FRAMEWORK_LABEL}"
    return f"kubectl apply{namespace} -f RUNTIME.yaml, where RUNTIME.yaml has the {runtime['kind']} alone"

"""API versions and fields of TrainJobs that the installed Trainer may not have, and what to write instead.

Sources: Trainer 2.0 to 2.3, pkg/apis/trainer/v1alpha1; its draft docs/proposals/2170-kubeflow-trainer-v2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import Problem, ProblemKind
from trainjob.spec.base import invalid_field
from trainjob.spec.problems import format_value

API_VERSION = "trainer.kubeflow.org/v1alpha1"
_UNRELEASED: Mapping[str, str] = {
    "datasetConfig": "write spec.initializer.dataset",
    "modelConfig": "write spec.initializer.model",
}
"""What to write in place of a field of a spec that no released Trainer has."""


def find_version_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is of another API version in a TrainJob or training runtime."""
    version = document.get("apiVersion")
    if version != API_VERSION:
        yield from invalid_field("apiVersion", version, f"{document['kind']}s have apiVersion {API_VERSION}").problems
    spec = document.get("spec")
    for field, advice in _UNRELEASED.items():
        if isinstance(spec, Mapping) and field in spec:
            name = f"spec.{field}"
            sentence = f"no released Trainer has this field: {advice}"
            yield Problem(name, format_value(name, spec[field]), sentence, ProblemKind.UNKNOWN)

"""API versions and fields of TrainJobs that the installed Trainer may not have, and what to write instead.

Sources: Trainer 2.0 to 2.3, pkg/apis/trainer/v1alpha1; its draft docs/proposals/2170-kubeflow-trainer-v2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.errors import Problem, ProblemKind
from trainjob.spec.base import invalid_field
from trainjob.spec.problems import format_value

API_VERSION = "trainer.kubeflow.org/v1alpha1"


@dataclass(frozen=True)
class _SpecField:
    """A field of a TrainJob's spec that not every Trainer has.

    Attributes:
        versions: the values of `trainjob.manifest.Dialect` that have it; empty if no released Trainer has it.
        advice: what to write in place of it.
    """

    versions: tuple[str, ...]
    advice: str


_FIELDS: Mapping[str, _SpecField] = {
    "podSpecOverrides": _SpecField(("2.0",), "write podTemplateOverrides (2.1) or runtimePatches (2.2 and later)"),
    "podTemplateOverrides": _SpecField(("2.1",), "write podSpecOverrides (2.0) or runtimePatches (2.2 and later)"),
    "runtimePatches": _SpecField(("2.2",), "write podTemplateOverrides (2.1) or podSpecOverrides (2.0)"),
    **{
        name: _SpecField(("2.0", "2.1"), f"write metadata.{name} of spec.runtimePatches[].trainingRuntimeSpec.template")
        for name in ("labels", "annotations")
    },
    "activeDeadlineSeconds": _SpecField(("2.2",), "set the time limit of the step or of its workflow task"),
    "datasetConfig": _SpecField((), "write spec.initializer.dataset"),
    "modelConfig": _SpecField((), "write spec.initializer.model"),
    "elasticPolicy": _SpecField((), "the number of nodes is fixed: write spec.trainer.numNodes"),
    "failurePolicy": _SpecField((), "write it into the training runtime, as spec.template.spec.failurePolicy"),
    **{
        name: _SpecField((), f"write it into the training runtime, as spec.{name}")
        for name in ("mlPolicy", "podGroupPolicy", "template")
    },
}


def find_version_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what no released Trainer has: another API version, or fields of drafts.

    Args:
        document: TrainJob or training runtime.
    """
    version, kind = document.get("apiVersion"), document["kind"]
    if version != API_VERSION:
        yield from invalid_field("apiVersion", version, f"{kind}s have apiVersion {API_VERSION}").problems
    if kind == "TrainJob" and isinstance(document.get("spec"), Mapping):
        yield from find_field_problems(document["spec"])


def find_field_problems(spec: Mapping[str, Any], version: str = "") -> Iterator[Problem]:
    """Yield the fields of a TrainJob's spec that the Trainer does not have.

    Args:
        spec: the spec.
        version: the cluster's value of `trainjob.manifest.Dialect`; empty for the fields that no Trainer has.
    """
    for name, field in _FIELDS.items():
        if name not in spec or (field.versions and (not version or version in field.versions)):
            continue
        others = " and ".join(field.versions).replace("2.2", "2.2 and later")
        missing = f"the Trainer of this cluster ({version}) does not have this field, only {others}"
        sentence = missing if field.versions else "no released Trainer has this field in a TrainJob"
        path = f"spec.{name}"
        yield Problem(path, format_value(path, spec[name]), f"{sentence}: {field.advice}", ProblemKind.UNKNOWN)

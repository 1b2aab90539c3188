"""Additions to an existing request: a manifest's name and labels, and variables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from trainjob.manifest.labels import retention_annotations
from trainjob.spec import TrainJob, TrainJobManifest
from trainjob.spec.trainers import escape_expansion


def build_from_manifest(
    job: TrainJobManifest,
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the manifest with our name and with its own and our labels and annotations.

    See `trainjob.manifest.build_trainjob`.
    """
    given = copy.deepcopy(job.manifest)
    metadata = given.get("metadata") or {}
    extra = {
        "labels": {**(metadata.get("labels") or {}), **(labels or {})},
        "annotations": {**(metadata.get("annotations") or {}), **retention_annotations(job), **(annotations or {})},
    }
    filled = {key: values for key, values in extra.items() if values}
    return {**given, "metadata": {"name": name, "namespace": namespace, **filled}}


def add_env(job: TrainJob | TrainJobManifest, variables: Mapping[str, str]) -> TrainJob | TrainJobManifest:
    """Return the same request with environment variables added to its trainer.

    A variable that the trainer sets itself keeps its value.

    Args:
        job: the request.
        variables: names and plain values.
    """
    if not variables:
        return job
    if isinstance(job, TrainJob):
        trainer = job.trainer.model_copy(update={"env": {**variables, **(job.trainer.env or {})}})
        return job.model_copy(update={"trainer": trainer})
    spec = job.manifest["spec"]
    given = spec.get("trainer") or {}
    own = given.get("env") or []
    known = {variable.get("name") for variable in own}
    more = [{"name": name, "value": escape_expansion(value)} for name, value in variables.items() if name not in known]
    spec = {**spec, "trainer": {**given, "env": [*own, *more]}}
    return job.model_copy(update={"manifest": {**job.manifest, "spec": spec}})

"""Additions to an existing request: a manifest's name and labels, variables, and nodes to avoid."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.manifest.labels import retention_annotations
from trainjob.spec import Placement, TrainJob, TrainJobManifest
from trainjob.spec.trainers import escape_expansion

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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


def avoid_nodes(job: TrainJob | TrainJobManifest, names: Sequence[str]) -> TrainJob | TrainJobManifest:
    """Return the request whose pods avoid nodes of the cluster, if its watchdog avoids them.

    Args:
        job: the request.
        names: names of the nodes.
    """
    if not names or isinstance(job, TrainJobManifest) or not (job.watchdog and job.watchdog.avoid_nodes):
        return job
    placement = job.placement or Placement()
    # The API server accepts one value for each name of a node (Kubernetes 1.36, pkg/apis/core/validation).
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names]
    of_nodes = placement.affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]  # a pod has to match one of them
    required = [{**term, "matchFields": [*(term.get("matchFields") or ()), *excluded]} for term in terms]
    affinity = {**placement.affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": required}}}
    return job.model_copy(update={"placement": placement.model_copy(update={"affinity": affinity})})


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

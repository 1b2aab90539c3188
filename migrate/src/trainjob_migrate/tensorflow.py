"""Conversion of a TFJob that has only Workers, with a generated TrainingRuntime without a policy.

Source: training-operator 1.9 pkg/apis/kubeflow.org/v1/tensorflow_types.go and pkg/controller.v1/tensorflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.status.nested_fields import get_mapping
from trainjob_migrate.draft import Draft, RuntimeShape
from trainjob_migrate.environment import PORT, RANK, Launch
from trainjob_migrate.hosts import host_reference
from trainjob_migrate.identity import IN_RUN_POLICY
from trainjob_migrate.uniform_jobs import UniformJobKind, convert_uniform_job

_INDEX = "TASK_INDEX"


def convert_tensorflow(draft: Draft, job: Mapping[str, Any], _: Launch) -> None:
    """Convert a TFJob of Workers into the draft; refuse other roles."""
    spec = get_mapping(job, "spec")
    if reason := _find_obstacle(job):
        draft.fields.mark_refused(("spec",), reason)
        draft.findings.clear()  # they are about a TrainJob
        return
    if spec.get("enableDynamicWorker") is True:
        reason = "a TrainJob has a fixed number of nodes, and TF_CONFIG names all of them: remove it"
        draft.fields.mark_refused(("spec", "enableDynamicWorker"), reason)
    draft.fields.mark_dropped(("spec", "enableDynamicWorker"), "the workers are fixed")
    draft.fields.mark_dropped(("spec", "successPolicy"), "a TrainJob is complete when all nodes have succeeded")
    convert_uniform_job(draft, job, _TENSORFLOW)


def _find_obstacle(job: Mapping[str, Any]) -> str:
    """Return the reason why a TFJob cannot become a TrainJob; empty if it has only Workers."""
    spec = get_mapping(job, "spec")
    roles = [str(role) for role in get_mapping(spec, "tfReplicaSpecs") or get_mapping(spec, "replicaSpecs")]
    if others := [role for role in roles if role.lower() != "worker"]:
        return (
            f"the Trainer has no runtime for the roles {', '.join(others)} of TensorFlow: only TFJobs of Workers alone "
            "become TrainJobs; keep the Training Operator for this job"
        )
    if job.get("apiVersion") != "kubeflow.org/v1":
        return (
            "a TFJob must have kubeflow.org/v1, and the roles of TensorFlow as the mapping spec.tfReplicaSpecs; "
            f"other versions are those of older operators: write it so, {IN_RUN_POLICY}"
        )
    return (
        "" if "tfReplicaSpecs" in spec and roles else "a TFJob of TensorFlow must have Workers in spec.tfReplicaSpecs"
    )


def _variables(nodes: int) -> list[dict[str, Any]]:
    """Return TF_CONFIG and the index in it; nothing for one Worker, as in v1."""
    if nodes == 1:
        return []
    workers = [f"{host_reference(rank)}:{PORT}" for rank in range(nodes)]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": _INDEX}, "environment": "cloud"}
    # Kubernetes inserts the number, which is no text in JSON.
    text = json.dumps(config).replace(f'"{_INDEX}"', f"$({_INDEX})")
    return [{"name": _INDEX, "valueFrom": RANK}, {"name": "TF_CONFIG", "value": text}]


_TENSORFLOW = UniformJobKind(
    replica_specs_field="tfReplicaSpecs",
    replica_counts={"Worker": None},
    container="tensorflow",
    shape=RuntimeShape("", "tensorflow", {"numNodes": 1}, {"node": "node"}),
    variables=_variables,
    reserved=(),
    explanation=(
        "The Trainer sets none of them, and has no runtime for TensorFlow (up to 2.3). Without TF_CONFIG, each Worker "
        "would train alone. With the Training Operator, the job succeeds when its first Worker does; with the Trainer, "
        "when all do."
    ),
)

"""Conversion of a JAXJob, for the runtime `jax-distributed`.

Source: training-operator 1.9 pkg/apis/kubeflow.org/v1/jax_types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft, RuntimeShape
from trainjob_migrate.environment import PORT, RANK, Launch
from trainjob_migrate.hosts import host_reference
from trainjob_migrate.uniform_jobs import UniformJobKind, convert_uniform_job


def convert_jax(draft: Draft, job: Mapping[str, Any], _: Launch) -> None:
    """Convert a JAXJob into the draft."""
    convert_uniform_job(draft, job, _JAX)


def _variables(nodes: int) -> list[dict[str, Any]]:
    """Return the variables of a JAXJob's pods.

    Source: training-operator 1.9 pkg/controller.v1/jax/envvar.go.
    """
    return [
        {"name": "COORDINATOR_PORT", "value": PORT},
        {"name": "COORDINATOR_ADDRESS", "value": host_reference(0)},
        {"name": "NUM_PROCESSES", "value": str(nodes)},
        {"name": "PROCESS_ID", "valueFrom": RANK},
    ]


_JAX = UniformJobKind(
    replica_specs_field="jaxReplicaSpecs",
    replica_counts={"Worker": None},
    container="jax",
    # Trainer 2.3 manifests/base/runtimes/jax_distributed.yaml.
    shape=RuntimeShape("jax-distributed", "jax", {"numNodes": 1, "jax": {}}, {"node": "node"}),
    variables=_variables,
    reserved=(),
    explanation=(
        "The Trainer sets JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID instead (from 2.2 on). A "
        "program that reads the old names would fail, or train alone if it has defaults for them."
    ),
)

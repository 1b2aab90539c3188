"""Conversion of an XGBoostJob, for the runtime `xgboost-distributed`.

Source: training-operator 1.9 pkg/apis/kubeflow.org/v1/xgboost_types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft, RuntimeShape
from trainjob_migrate.environment import PORT, RANK, Launch
from trainjob_migrate.hosts import host_reference
from trainjob_migrate.uniform_jobs import UniformJobKind, convert_uniform_job


def convert_xgboost(draft: Draft, job: Mapping[str, Any], _: Launch) -> None:
    """Convert an XGBoostJob, which may train with LightGBM, into the draft."""
    convert_uniform_job(draft, job, _XGBOOST)


def _variables(nodes: int) -> list[dict[str, Any]]:
    """Return the variables of an XGBoostJob's pods; the last two are for LightGBM.

    Source: training-operator 1.9 pkg/controller.v1/xgboost/xgboost.go.
    """
    found: list[dict[str, Any]] = [
        {"name": "MASTER_PORT", "value": PORT},
        {"name": "MASTER_ADDR", "value": host_reference(0)},
        {"name": "WORLD_SIZE", "value": str(nodes)},
        {"name": "RANK", "valueFrom": RANK},
    ]
    workers = ",".join(host_reference(rank) for rank in range(1, nodes))
    if workers:
        found += [{"name": "WORKER_PORT", "value": PORT}, {"name": "WORKER_ADDRS", "value": workers}]
    return found


_XGBOOST = UniformJobKind(
    replica_specs_field="xgbReplicaSpecs",
    replica_counts={"Master": 1, "Worker": None},
    container="xgboost",
    # Trainer 2.3 manifests/base/runtimes/xgboost_distributed.yaml.
    shape=RuntimeShape("xgboost-distributed", "xgboost", {"numNodes": 1, "xgboost": {}}, {"node": "node"}),
    variables=_variables,
    # Trainer 2.3 pkg/constants/constants.go, XGBoostReservedEnvNames.
    reserved=("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    explanation=(
        "The Trainer sets DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID and DMLC_NUM_WORKER instead (from 2.2 on), "
        "the last as the number of nodes times their GPUs. A program that reads the old names would fail, or train "
        "alone if it has defaults for them. Neither operator starts the tracker; rank 0 of the program starts it."
    ),
)

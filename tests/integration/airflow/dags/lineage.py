"""Steps that report to OpenLineage: the first prints its parent run, the second fails."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import InitializeDatasetOperator, TrainJobOperator, Workspace

PRINT_PARENT = 'echo "parent $OPENLINEAGE_PARENT_ID root $OPENLINEAGE_ROOT_PARENT_ID"'


@dag(schedule=None, catchup=False)
def lineage():
    TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["sh", "-c", PRINT_PARENT]})
    workspace = Workspace(size="1Gi", name="files")
    InitializeDatasetOperator(
        task_id="dataset", workspace=workspace, storage_uri="hf://acme/tickets/data", namespace="nowhere"
    )


lineage()

"""Fine-tune with TRL, and track parameters and metrics on an MLflow server.

The run on the server has the DAG's name as experiment. Its tags lead back to the DAG run, the task and the TrainJob. A
retry continues the same run. The task `fine_tune` has the link `Tracked run`. The pods need the server's address, and
the Secret named by `secret="mlflow"` if the server requires a login. `WandB(...)` and `TensorBoard(...)` take the place
of `MLflow(...)`. On a real cluster, name a real dataset and model, set `resources_per_node={"gpu": 1}`, and remove
`precision`, which is for CPUs.
"""

from __future__ import annotations

from airflow.sdk import Param, dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import TRLConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)


@dag(
    schedule=None,
    default_args={"retries": 2},
    doc_md=__doc__,
    params={"mlflow": Param("http://mlflow.mlflow:5000", description="MLflow server")},
)
def tracked():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="tiny-llama",
            dataset_path="chats",
            config=TRLConfig(method="sft", epochs=1, batch_size=8, learning_rate=3e-3, precision="fp32"),
            tracking={"backend": "mlflow", "tracking_uri": "{{ params.mlflow }}", "parameters": {"dataset": DATASET}},
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination=EXPORT)
        dataset >> model >> fine_tune >> export


tracked()

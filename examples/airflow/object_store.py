"""Download dataset and model from an object store, fine-tune, and upload the result there.

The Secret `object-store` in the TrainJobs' namespace has the keys `ACCESS_KEY_ID` and `SECRET_ACCESS_KEY`. Its values
never pass through Airflow. For AWS, omit `endpoint`. For Google Cloud Storage, use `gs://` and the Secret's key
`GOOGLE_CREDENTIALS`. Unchanged files are neither downloaded nor uploaded again.
"""

from __future__ import annotations

from airflow.sdk import Param, dag
from tiny_llama import CPU, TINY

from trainjob import TorchTuneConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

STORE = {"endpoint": "{{ params.endpoint }}", "secret": "object-store"}


@dag(
    schedule=None, default_args={"retries": 2}, params={"endpoint": Param("http://minio.kubeflow:9000")}, doc_md=__doc__
)
def object_store():
    with Workspace(size="1Gi") as workspace:
        dataset = InitializeDatasetOperator(
            task_id="dataset", workspace=workspace, storage_uri="s3://models/tickets", **STORE
        )
        model = InitializeModelOperator(
            task_id="model", workspace=workspace, storage_uri="s3://models/tiny-llama", **STORE
        )
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="llama3.2-1b",
            config=TorchTuneConfig(
                epochs=1,
                batch_size=8,
                dtype="fp32",
                learning_rate=3e-3,
                max_steps_per_epoch=10,
                overrides=(*CPU, *TINY),
            ),
        )
        export = ExportModelOperator(
            task_id="export", workspace=workspace, destination="s3://models/tickets-llm/{{ run_id }}", **STORE
        )
        dataset >> model >> fine_tune >> export


object_store()

"""From an object store and back into it: dataset and model are fetched from a bucket, the fine-tuned model goes there.

The Secret `object-store` in the TrainJobs' namespace has the keys `ACCESS_KEY_ID` and `SECRET_ACCESS_KEY`; values never
pass through Airflow. Leave out `endpoint` for AWS. For Google Cloud Storage write `gs://`; the Secret's key is then
`GOOGLE_CREDENTIALS`. What has not changed is neither fetched nor sent again.
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


@dag(schedule=None, params={"endpoint": Param("http://minio.kubeflow:9000")}, doc_md=__doc__)
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
        [dataset, model] >> fine_tune >> export


object_store()

"""Fine-tune, export, and register the model with its metrics and sources in a registry.

Every run creates a version of the model `tickets`, named after the export's digest. A task that runs again therefore
finds the version that it created. The registry is a Kubeflow Model Registry. Its address is a parameter of the run. If
the registry requires a token, store it in a Secret with the key `REGISTRY_TOKEN`, and set `"secret": "model-registry"`.
"""

from __future__ import annotations

from airflow.sdk import Param, dag
from tiny_llama import CPU, DATASET, EXPORT, MODEL, TINY

from trainjob import TorchTuneConfig
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
    params={"registry": Param("http://model-registry-service.kubeflow:8080")},
    doc_md=__doc__,
)
def registered():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        # On a real hub, set a tag such as revision="v1.0", or a commit. Every run then starts from the same weights.
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL, revision="main")
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
            task_id="export",
            workspace=workspace,
            destination=EXPORT,
            metadata={"trainjob_uid": "{{ ti.xcom_pull('fine_tune')['uid'] }}"},
            registry={"server": "{{ params.registry }}", "model": "tickets", "author": "{{ dag.dag_id }}"},
        )
        dataset >> model >> fine_tune >> export


registered()

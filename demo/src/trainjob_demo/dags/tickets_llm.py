"""Fine-tune a tiny Llama on support tickets; `make demo` runs this DAG.

Its steps download dataset and model, fine-tune with TorchTune, and export. On a real cluster, remove the settings in
CPU and TINY, and name a real dataset and model.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import CPU, TINY

from trainjob import TorchTuneConfig, TorchTuneInstructDataset
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)


@dag(schedule=None, default_args={"retries": 2}, catchup=False, doc_md=__doc__)
def tickets_llm():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(
            task_id="dataset", workspace=workspace, storage_uri="hf://demo/tickets/data"
        )
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri="hf://demo/tiny-llama")
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="llama3.2-1b",
            config=TorchTuneConfig(
                epochs=4,
                batch_size=8,
                dtype="fp32",
                learning_rate=3e-3,
                dataset_preprocess_config=TorchTuneInstructDataset(source="parquet"),
                overrides=(*CPU, *TINY),
            ),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination="/workspace/export")
        dataset >> model >> fine_tune >> export


tickets_llm()

"""Fine-tune with TRL on two nodes.

Both nodes read the dataset and the model from the workspace and use its checkpoints, so its access mode is
ReadWriteMany. Each node computes half of every batch, and the nodes average their gradients (DDP). A model that is
too large for one GPU is sharded over all GPUs with `fsdp=True`. For GPUs, set `resources_per_node={"gpu": 8}`, which
starts eight processes on each node. A retry resumes from the last complete checkpoint.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import TRLConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def trl_two_nodes():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", access_mode="ReadWriteMany", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="tiny-llama",
            dataset_path="chats",
            config=TRLConfig(
                method="sft",
                num_nodes=2,
                epochs=1,
                batch_size=8,
                learning_rate=3e-3,
                precision="fp32",
                save_strategy="steps",
                save_steps=10,
            ),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination=EXPORT)
        [dataset, model] >> fine_tune >> export


trl_two_nodes()

"""Fine-tune a text model with TRL (SFT); `make demo FRAMEWORK=trl` runs this DAG.

TRL trains every language model that transformers can load. The rows have `prompt` and `completion`, `messages` or
`text`; for other names, add `columns={"prompt": "question", "completion": "reply"}`. The field `model` is only a name
for the metadata: the trained model is the one that the task `model` downloads. On a real cluster, name a real dataset
and model, set `resources_per_node={"gpu": 1}`, and remove `precision`, which is for CPUs. To train an adapter instead
of all weights, add `peft_config=TRLLoraConfig(lora_rank=16)`.
"""

from __future__ import annotations

from airflow.sdk import dag

from trainjob import TRLConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def trl_sft():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri="hf://demo/tickets")
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri="hf://demo/tiny-llama")
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="tiny-llama",
            dataset_path="chats",
            config=TRLConfig(method="sft", epochs=4, batch_size=8, learning_rate=3e-3, precision="fp32"),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination="/workspace/export")
        dataset >> model >> fine_tune >> export


trl_sft()

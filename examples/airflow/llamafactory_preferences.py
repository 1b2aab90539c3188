"""Fine-tune an adapter with LLaMA-Factory, then apply direct preference optimization (DPO).

The first training learns answers with LoRA. An export writes the merged model to a folder of the workspace, and the
second training starts from this folder (`model_path`). It learns which of two answers is better, with all weights. The
rows of a dataset for TRL need no change. The pods use LLaMA-Factory's own image. On a real cluster, name a real dataset
and model, and set `resources_per_node={"gpu": 1}` and `precision="bf16"`.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import LLaMAFactoryConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

SFT = LLaMAFactoryConfig(method="sft", epochs=1, batch_size=8, learning_rate=1e-2, peft_config={"lora_rank": 16})
DPO = LLaMAFactoryConfig(
    method="dpo", epochs=1, batch_size=8, learning_rate=1e-3, arguments={"pref_beta": 0.1, "logging_steps": 5}
)


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def llamafactory_preferences():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        tuning = {"workspace": workspace, "model": "tiny-llama"}
        sft = FineTuneOperator(task_id="sft", dataset_path="chats", output_path="sft", config=SFT, **tuning)
        merged = ExportModelOperator(
            task_id="merged", workspace=workspace, output_path="sft", destination="/workspace/sft"
        )
        dpo = FineTuneOperator(
            task_id="dpo", model_path="sft", dataset_path="pairs", output_path="dpo", config=DPO, **tuning
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, output_path="dpo", destination=EXPORT)
        dataset >> model >> sft >> merged >> dpo >> export


llamafactory_preferences()

"""Fine-tune an adapter with TRL, then apply direct preference optimization (DPO).

The first training learns answers with LoRA. An export writes the merged model to a folder of the workspace, and the
second training starts from this folder (`model_path`). It learns which of two answers is better. With
`adapter="keep"`, the last export writes the adapter instead of the merged model. For QLoRA, which needs a GPU, set
`load_in_4bit=True`.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import TRLConfig, TRLLoraConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

LORA = TRLLoraConfig(lora_rank=16, lora_alpha=32, target_modules=("all-linear",))


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def trl_preferences():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        sft = FineTuneOperator(
            task_id="sft",
            workspace=workspace,
            model="tiny-llama",
            dataset_path="chats",
            output_path="sft",
            config=TRLConfig(
                method="sft", epochs=1, batch_size=8, learning_rate=1e-2, precision="fp32", peft_config=LORA
            ),
        )
        sft_model = ExportModelOperator(
            task_id="sft_model", workspace=workspace, output_path="sft", destination="/workspace/sft"
        )
        dpo = FineTuneOperator(
            task_id="dpo",
            workspace=workspace,
            model="tiny-llama",
            model_path="sft",
            dataset_path="pairs",
            output_path="dpo",
            config=TRLConfig(
                method="dpo",
                epochs=1,
                batch_size=8,
                learning_rate=1e-3,
                precision="fp32",
                peft_config=LORA,
                arguments={"beta": 0.1},
            ),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, output_path="dpo", destination=EXPORT)
        dataset >> model >> sft >> sft_model >> dpo >> export


trl_preferences()

"""Fine-tune an adapter with Unsloth (QLoRA), and export the merged model.

Unsloth trains on GPUs only, so this example does not run on a laptop cluster. Before the first run, build an image with
Unsloth, push it to your registry, and name it in `IMAGE`. The base model is kept in 4 bits. The export writes the
merged model; with `adapter="keep"` it writes the adapter.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import UnslothConfig, UnslothLoraConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

IMAGE = "registry.example/unsloth:2026.10.9"
CONFIG = UnslothConfig(
    method="sft",
    epochs=1,
    batch_size=8,
    learning_rate=2e-4,
    peft_config=UnslothLoraConfig(lora_rank=16, lora_alpha=16, load_in_4bit=True),
    resources_per_node={"gpu": 1},
)


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def unsloth_sft():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="20Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        sft = FineTuneOperator(
            task_id="sft", workspace=workspace, model="tiny-llama", dataset_path="chats", image=IMAGE, config=CONFIG
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination=EXPORT)
        dataset >> model >> sft >> export


unsloth_sft()

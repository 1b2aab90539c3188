"""SFT and DPO with LoRA in LLaMA-Factory, whose pods a test kills, and an export after each."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import dag

from trainjob import WorkspaceVolume
from trainjob_airflow import ExportModelOperator, FineTuneOperator, InitializeDatasetOperator, InitializeModelOperator

POD_ENV = json.loads(os.environ.get("POD_ENV", "{}"))
CONFIG = {
    "framework": "llamafactory",
    "max_steps": 12,
    "batch_size": 8,
    "save_strategy": "steps",
    "save_steps": 4,
    "peft_config": {"lora_rank": 4},
    "arguments": {"logging_steps": 2},
}


@dag(schedule=None, catchup=False)
def llamafactory_chain():
    workspace = WorkspaceVolume(node_path=os.environ.get("FOLDER", "/nowhere"))

    def fine_tune(task_id, dataset, learning_rate, **more):
        return FineTuneOperator(
            task_id=task_id,
            model="tiny-llama",
            workspace=workspace,
            dataset_path=dataset,
            output_path=task_id,
            config={**CONFIG, "method": task_id, "learning_rate": learning_rate},
            env=POD_ENV.get(task_id),
            retries=1,
            retry_delay=timedelta(0),
            **more,
        )

    def export(task_id, source):
        return ExportModelOperator(
            task_id=task_id, workspace=workspace, output_path=source, destination=f"/workspace/{task_id}"
        )

    fetched = [
        InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri="hf://demo/tickets"),
        InitializeModelOperator(task_id="model", workspace=workspace, storage_uri="hf://demo/tiny-llama"),
    ]
    sft = fine_tune("sft", "chats", 1e-2)
    dpo = fine_tune("dpo", "pairs", 1e-3, model_path="merged")
    fetched >> sft >> export("merged", "sft") >> dpo >> export("export", "dpo")


llamafactory_chain()

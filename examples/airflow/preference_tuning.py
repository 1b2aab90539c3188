"""Fine-tune a model on answers, then apply direct preference optimization (DPO).

The second training learns which of two answers is better. It starts from the first training's model: an export writes
this model to a folder of the workspace, and `model_path` names the folder. The last export writes the result of both
trainings.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import CPU, DATASET, EXPORT, MODEL, TINY

from trainjob import LoraConfig, PreferenceTuning, TorchTuneConfig, TorchTunePreferenceDataset
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

TINY_LORA = ("model=torchtune.models.llama3_2.lora_llama3_2", *TINY[1:])


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def preference_tuning():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        answers = FineTuneOperator(
            task_id="answers",
            workspace=workspace,
            model="llama3.2-1b",
            output_path="answers",
            config=TorchTuneConfig(epochs=1, batch_size=8, dtype="fp32", learning_rate=3e-3, overrides=(*CPU, *TINY)),
        )
        taught = ExportModelOperator(
            task_id="taught", workspace=workspace, output_path="answers", destination="/workspace/taught"
        )
        preferences = FineTuneOperator(
            task_id="preferences",
            workspace=workspace,
            model="llama3.2-1b",
            model_path="taught",
            dataset_path="pairs",
            output_path="preferences",
            config=TorchTuneConfig(
                preference_tuning=PreferenceTuning(beta=0.1),
                peft_config=LoraConfig(lora_rank=16, lora_alpha=32),
                dataset_preprocess_config=TorchTunePreferenceDataset(source="parquet"),
                epochs=1,
                batch_size=8,
                gradient_accumulation_steps=1,
                dtype="fp32",
                learning_rate=1e-3,
                overrides=(*CPU, *TINY_LORA, "lr_scheduler.num_warmup_steps=5"),
            ),
        )
        export = ExportModelOperator(
            task_id="export", workspace=workspace, output_path="preferences", destination=EXPORT
        )
        dataset >> model >> answers >> taught >> preferences >> export


preference_tuning()

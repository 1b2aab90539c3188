"""Fine-tune a tiny Llama on support tickets: initialize, fine-tune with TorchTune, export. `make demo` runs it.

On a real cluster, drop what CPU and TINY say and name a real dataset and model.
"""

from __future__ import annotations

from airflow.sdk import dag

from trainjob import TorchTuneConfig, TorchTuneInstructDataset
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

CPU = ("device=cpu", "optimizer=torch.optim.AdamW")
# The shape of the demo's model; the recipe's own is that of Llama 3.2 1B.
TINY = (
    "model=torchtune.models.llama3_2.llama3_2",
    "model.vocab_size=576",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.embed_dim=64",
    "model.intermediate_dim=128",
    "model.max_seq_len=2048",
    "tokenizer.special_tokens_path=/workspace/model/tokenizer.json",
)


@dag(schedule=None, catchup=False)
def tickets_llm():
    # keep="always": the export is a folder on this volume.
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
        [dataset, model] >> fine_tune >> export


tickets_llm()

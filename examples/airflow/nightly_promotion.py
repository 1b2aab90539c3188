"""Every night: fine-tune, compare with the model in production, promote the better one, and undo it if a check fails.

All runs share the volume `tickets`. Each exports its model to a folder of its own, so a model that is served is never
overwritten. Both models answer the same held-out tickets. If a gate fails, the run ends there, and the old model stays.
`serve` makes `served` a link to the model; with KServe, omit `function`, and give the name of its service. If `check`
fails, `undo` serves the model before again, and the run fails. A retry or a kill promotes nothing twice.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import Param, dag, task
from tiny_llama import CPU, DATASET, MODEL, TINY

from trainjob_airflow import (
    EvaluateOperator,
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    PromoteOperator,
    RollbackOperator,
    TrainJobOperator,
)

WORKSPACE = "tickets"
CANDIDATE = "models/{{ run_id | replace(':', '-') | replace('+', '-') }}"
IMAGE = "pytorch/pytorch"  # on a real cluster, use an image with torch, transformers and pyarrow


def answers(model_path):
    """Return whether each held-out ticket gets the right answer."""
    import os
    from pathlib import Path

    import torch
    from pyarrow.parquet import ParquetFile
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path)
    model = LlamaForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    found = []
    for row in ParquetFile(held_out).read().to_pylist():
        chat = [{"role": "user", "content": row["input"]}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        tokens = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        answer = tokenizer.decode(tokens[0, prompt.shape[1] :], skip_special_tokens=True)
        found.append({"right": float(answer == row["output"])})
    return found


def serve(uri):
    """Make `served` a link to a model such as `pvc://tickets/models/7`, or remove it."""
    import os
    from pathlib import Path

    served = Path(os.environ["FOLDER"], "served")
    if not uri:
        served.unlink(missing_ok=True)
        return
    new = served.with_name("served.new")
    new.unlink(missing_ok=True)
    new.symlink_to(uri.split("/", 3)[3])
    new.replace(served)


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},  # a retry adopts a running TrainJob
    params={
        "minimum": Param(0.8, type="number"),
        "epochs": Param(4, type="integer"),
        "checked_file": "config.json",
    },
    doc_md=__doc__,
)
def nightly_promotion():
    dataset = InitializeDatasetOperator(task_id="dataset", workspace=WORKSPACE, storage_uri=DATASET)
    model = InitializeModelOperator(task_id="model", workspace=WORKSPACE, storage_uri=MODEL)
    fine_tune = FineTuneOperator(
        task_id="fine_tune",
        workspace=WORKSPACE,
        model="llama3.2-1b",
        config={
            "framework": "torchtune",
            "epochs": "{{ params.epochs }}",
            "batch_size": 8,
            "dtype": "fp32",
            "learning_rate": 3e-3,
            "overrides": (*CPU, *TINY),
        },
    )
    candidate = ExportModelOperator(task_id="candidate", workspace=WORKSPACE, destination=f"/workspace/{CANDIDATE}")
    evaluate = EvaluateOperator(
        task_id="evaluate",
        workspace=WORKSPACE,
        model_path=CANDIDATE,
        champion={"service": "tickets", "service_kind": "Command"},
        allow_missing_champion=True,  # in the first night
        function=answers,
        gates={"answers/right": {"minimum": "{{ params.minimum }}", "not_worse_than_champion": 0.02}},
        image=IMAGE,
        env={"HELD_OUT": "/workspace/dataset/heldout"},
    )
    place = {"workspace": WORKSPACE, "service": "tickets", "function": serve, "env": {"FOLDER": "/workspace"}}
    promote = PromoteOperator(task_id="promote", model=f"/workspace/{CANDIDATE}", **place)
    check = TrainJobOperator(
        task_id="check",
        workspace=WORKSPACE,
        trainer={"image": IMAGE, "command": ["test", "-f", "/workspace/served/{{ params.checked_file }}"]},
        retries=1,
        retry_delay=timedelta(seconds=10),
    )
    undo = RollbackOperator(task_id="undo", trigger_rule="one_failed", **place)

    @task
    def announce(promotion):
        print(f"{promotion['model']} is served, in place of {promotion['before'] or 'nothing'}")

    dataset >> model >> fine_tune >> candidate >> evaluate >> promote >> check >> undo
    check >> announce(promote.output)


nightly_promotion()

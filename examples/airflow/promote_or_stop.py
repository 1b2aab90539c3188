"""Fine-tune, evaluate on held-out tickets, and promote the model if it is good enough.

Training and evaluation are TrainJobs on one workspace, so the model is not copied elsewhere before its promotion. The
task returns the evaluating function's value as `result`. The threshold is a parameter of the run.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Param, dag, task
from tiny_llama import CPU, DATASET, EXPORT, MODEL, TINY

from trainjob import TorchTuneConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

SCRIPT = Path(__file__).resolve().parent.parent / "tickets" / "evaluate.py"
IMAGE = "pytorch/pytorch"  # on a real cluster, use an image with torch, transformers and pyarrow
CANDIDATE, HELD_OUT = "/workspace/candidate", "/workspace/dataset/heldout"


@dag(
    schedule=None, default_args={"retries": 2}, params={"least_exact_match": Param(0.9, type="number")}, doc_md=__doc__
)
def promote_or_stop():
    # keep="always", because the promoted model is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="llama3.2-1b",
            config=TorchTuneConfig(epochs=4, batch_size=8, dtype="fp32", learning_rate=3e-3, overrides=(*CPU, *TINY)),
        )
        candidate = ExportModelOperator(task_id="candidate", workspace=workspace, destination=CANDIDATE)

        # The laptop cluster replaces /workspace by its own path in variables, but not in a function's source.
        @task.trainjob(workspace=workspace, image=IMAGE, env={"MODEL": CANDIDATE, "HELD_OUT": HELD_OUT})
        def evaluate(script):
            import json
            import os
            import subprocess
            import sys
            from pathlib import Path

            [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
            command = [sys.executable, "-c", script, os.environ["MODEL"], held_out]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            return json.loads(done.stdout)

        @task.short_circuit
        def good_enough(evaluation, *, params):
            right, total = map(int, evaluation["result"]["exact_match"].split("/"))
            print(f"{right} of {total} answers are right")
            return right / total >= params["least_exact_match"]

        evaluation = evaluate(SCRIPT.read_text())
        promote = ExportModelOperator(task_id="promote", workspace=workspace, destination=EXPORT)
        dataset >> model >> fine_tune >> candidate >> evaluation
        good_enough(evaluation) >> promote


promote_or_stop()

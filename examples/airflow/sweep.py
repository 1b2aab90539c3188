"""Try several learning rates at once, each in its own TrainJob, and export the best model.

Each learning rate has one mapped task. The tasks run at the same time on one workspace, so its access mode is
ReadWriteMany, and `output_path` separates their checkpoints. The run's parameter sets the learning rates:
`{"learning_rates": [1e-4, 3e-4]}`. The best of the tries that succeed is exported, so a learning rate that is too high
fails only its own task. If the trainings wait for GPUs, set a Kueue queue: `queue_name="gpu-team"`. A waiting task
occupies no worker.

No task states `retries`: the default ones of Airflow 3.3 do not repeat a training that has failed by itself.
"""

from __future__ import annotations

from airflow.sdk import Param, dag, task
from tiny_llama import CPU, DATASET, EXPORT, MODEL, TINY

from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)

CONFIG = {
    "framework": "torchtune",
    "epochs": 1,
    "batch_size": 8,
    "dtype": "fp32",
    "max_steps_per_epoch": 10,
    "seed": 1,
    "overrides": [*CPU, *TINY],
}


@dag(
    schedule=None,
    params={"learning_rates": Param([1e-4, 3e-3], type="array")},
    doc_md=__doc__,
)
def sweep():
    @task
    def candidates(*, params):
        return [{**CONFIG, "learning_rate": rate} for rate in params["learning_rates"]]

    @task(trigger_rule="all_done")  # a try that fails or diverges has no result
    def best(*, ti, params):
        tries = ti.xcom_pull(task_ids="fine_tune", map_indexes=range(len(params["learning_rates"])))
        losses = {index: one["progress"]["loss"] for index, one in enumerate(tries) if one}
        print(f"losses: {losses}")
        if not losses:
            raise ValueError("no try succeeded; the logs of fine_tune show the reasons")
        return min(losses, key=losses.get)  # the map index of the best try

    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", access_mode="ReadWriteMany", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        fine_tune = FineTuneOperator.partial(
            task_id="fine_tune",
            workspace=workspace,
            model="llama3.2-1b",
            output_path="{{ ti.map_index }}",
        ).expand(config=candidates())
        export = ExportModelOperator(
            task_id="export",
            workspace=workspace,
            output_path="{{ ti.xcom_pull(task_ids='best') }}",
            destination=EXPORT,
        )
        [dataset, model] >> fine_tune >> best() >> export


sweep()

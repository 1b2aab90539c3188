"""Fine-tune every night and notify other DAGs with an asset event for each exported model.

Two more DAGs follow. Airflow runs `announce_model` after each export of this Airflow, because the DAG is scheduled by
the asset. It runs `register_models` after every export in the namespace, also after those of a pipeline, a shell or
another Airflow. The watcher of that asset reports each of their TrainJobs that becomes complete.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import Asset, AssetWatcher, dag, task
from tiny_llama import CPU, DATASET, EXPORT, MODEL, TINY

from trainjob import TorchTuneConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    TrainJobEventTrigger,
    Workspace,
)

TICKETS_MODEL = Asset("tickets_model")
EXPORTS = Asset(
    "exports",
    watchers=[AssetWatcher(name="exports", trigger=TrainJobEventTrigger(label_selector="trainjob.dev/task=export"))],
)


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},  # a retry adopts a running TrainJob
    doc_md=__doc__,
)
def nightly_fine_tune():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        fine_tune = FineTuneOperator(
            task_id="fine_tune",
            workspace=workspace,
            model="llama3.2-1b",
            config=TorchTuneConfig(
                epochs=1,
                batch_size=8,
                dtype="fp32",
                learning_rate=3e-3,
                max_steps_per_epoch=10,
                overrides=(*CPU, *TINY),
            ),
            execution_timeout=timedelta(hours=6),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination=EXPORT, outlets=[TICKETS_MODEL])
        dataset >> model >> fine_tune >> export


@dag(schedule=[TICKETS_MODEL], doc_md="Print which model the nightly run has exported.")
def announce_model():
    @task(inlets=[TICKETS_MODEL])
    def announce(*, inlet_events):
        made = inlet_events[TICKETS_MODEL][-1].extra
        print(f"{made['trainjob']} exported {made['location']}, {made['digest']}, loss {made['metrics']['loss']:.3f}")
        return made

    announce()


@dag(schedule=[EXPORTS], doc_md="Print every export in the namespace, whichever program created it.")
def register_models():
    @task
    def register(*, triggering_asset_events):
        models = [event.extra["payload"]["model"] for event in triggering_asset_events.get(EXPORTS, ())]
        print(f"to register: {models}")
        return models

    register()


nightly_fine_tune()
announce_model()
register_models()

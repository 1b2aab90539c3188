"""Promotions of the models FOLDER/a, b and bad, of which the last cannot be served; a rollback follows each chain."""

import os

from airflow.sdk import DAG

from trainjob_airflow import PromoteOperator, RollbackOperator

FOLDER = os.environ.get("FOLDER", "/nowhere")


def serve(uri):
    import os
    import sys
    from pathlib import Path

    if uri.endswith("bad"):
        sys.exit("this model cannot be loaded")
    Path(os.environ["FOLDER"], "served").write_text(uri)


place = {"service": os.environ.get("SERVICE", "tickets"), "function": serve, "env": {"FOLDER": FOLDER}}
arguments = {"retries": 0, "deferrable": os.environ.get("DEFERRABLE") == "1"}
with DAG("promoted", schedule=None, default_args=arguments, params={"model": "b"}):
    first = PromoteOperator(task_id="first", model="s3://models/a", **place)
    second = PromoteOperator(task_id="second", model="s3://models/{{ params.model }}", **place)
    bad = PromoteOperator(task_id="bad", model="s3://models/bad", **place)
    undo = RollbackOperator(task_id="undo", trigger_rule="all_failed", **place)
    first >> second >> bad >> undo

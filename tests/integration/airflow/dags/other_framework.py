"""A training with the framework of another package, which the process that parses this file need not have."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import dag

from trainjob import WorkspaceVolume
from trainjob_airflow import FineTuneOperator


@dag(schedule=None, catchup=False)
def other_framework():
    FineTuneOperator(
        task_id="fine_tune",
        model="line",
        workspace=WorkspaceVolume(node_path=os.environ.get("FOLDER", "/nowhere")),
        config={"framework": "line", "steps": 300},
        image="python:3.11",
        env=json.loads(os.environ.get("POD_ENV", "{}")),
        retries=1,
        retry_delay=timedelta(0),
    )


other_framework()

"""Fixtures: a complete Airflow whose tasks and triggers have traps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.standalone import SHORT_INTERVALS, Standalone

HERE = Path(__file__).resolve().parent
_PATH = os.pathsep.join([str(Path(__file__).resolve().parents[4]), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module")
def airflow(laptop, tmp_path_factory):
    home = tmp_path_factory.mktemp("airflow")
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    more = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, "PYTHONPATH": _PATH}
    with Standalone(home, HERE / "dags", **{**SHORT_INTERVALS, **more}) as airflow:
        yield airflow

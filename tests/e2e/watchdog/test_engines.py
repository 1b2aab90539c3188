"""Trainings with gloo in which one rank fails, as steps of Airflow and KFP on both clusters."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from control_plane import ControlPlane
from tests.support.dag_examples import ROOT, ExampleRuns, airflow_environment
from tests.support.gloo_faults import CATEGORIES, describe_fault
from trainjob.status.failure_rules import RULES

pytestmark = [
    pytest.mark.timeout(300, func_only=True),
    pytest.mark.torchtune,
    pytest.mark.usefixtures("torchrun_lock", "kubeconfig"),
]
CLUSTERS = {"laptop cluster": "laptop", "real control plane": "plane"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    environments = {"torchtune": ROOT / ".venv" / "torchtune"}
    with ControlPlane(tmp_path_factory.mktemp("plane") / "state", environments=environments) as created:
        yield created


@pytest.fixture(scope="module", params=CLUSTERS, ids=lambda name: name.replace(" ", "-"))
def kubeconfig(request):
    return request.getfixturevalue(CLUSTERS[request.param]).kubeconfig


@pytest.fixture(scope="module")
def run_in_airflow(kubeconfig, tmp_path_factory):
    folder, dags = tmp_path_factory.mktemp("airflow"), Path(__file__).with_name("dags")
    environment = airflow_environment(kubeconfig, folder / "home")
    runs = ExampleRuns({**environment, "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}, folder / "airflow.log", dags)

    def run(fault, ranks):
        before = len(runs.read_log())
        done = runs.run(f"{fault}-{ranks}")
        return done["state"] == "success", runs.read_log()[before:]

    yield run
    runs.stop()


@pytest.fixture(scope="module")
def run_in_kfp(kubeconfig, tmp_path_factory):
    def run(fault, ranks):
        command = [ROOT / ".venv/kfp/bin/python", "-m", "tests.e2e.watchdog.pipeline"]
        arguments = [tmp_path_factory.mktemp("kfp"), fault, str(ranks // 2)]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode == 0, done.stdout

    return run


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("fault", CATEGORIES)
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_the_step_names_rank_category_and_place(request, engine, fault, ranks, evidence):
    succeeded, log = request.getfixturevalue(f"run_in_{engine}")(fault, ranks)
    found = re.search(describe_fault(fault, ranks), log)
    is_right = not succeeded and found is not None and RULES[CATEGORIES[fault]].advice in log
    cluster = request.node.callspec.params["kubeconfig"]
    evidence("gloo", fault=fault, engine=engine, cluster=cluster, runs=1, found=int(is_right))
    assert is_right, log[-8000:]

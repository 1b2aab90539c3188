"""The examples with a queue, run by Airflow and by KFP on a control plane with the real Kueue: they wait, then run."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane.queues import make_queue, prepare
from tests.support import dag_examples
from tests.support.diagnosed_jobs import shell
from tests.support.kubernetes_client import Client
from tests.support.polling import until
from trainjob import Queue, RunKey
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import cancel, submit
from trainjob.status import Phase, judge

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.timeout(600)

WAITS = r"waiting for quota in queue team; Workload \S+: Pending: couldn't assign flavors .* insufficient unused quota"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable(kueue=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("queued") / "state", kueue=True) as cluster:
        with contextlib.closing(Client.of(str(cluster.kubeconfig))) as client:
            prepare(client)
            make_queue(client, cluster.namespace, "team")
        yield cluster


@pytest.fixture
def cluster(plane):
    with contextlib.closing(Cluster(Connection(kubeconfig=str(plane.kubeconfig)), patience=20.0)) as opened:
        yield opened


@pytest.fixture
def others(cluster, unique):
    """A training of somebody else that has the queue's whole quota."""
    job = shell("sleep 600", job={"queue": Queue(name="team", priority_class="urgent")}, resources_per_node={"cpu": 1})
    reference = submit(cluster, job, RunKey("e2e", "kueue", "others", unique))
    until(lambda: judge(cluster.get_trainjob(reference.name, "default")).phase is Phase.RUNNING, 60)
    yield reference
    cancel(cluster, reference)


def priorities(plane):
    """Of the trainings that have been done in the queue."""
    with contextlib.closing(Client.of(str(plane.kubeconfig))) as client:
        workloads = client.list("Workload", plane.namespace)
    done = [one for one in workloads if any(c["type"] == "Finished" for c in one["status"]["conditions"])]
    return sorted(one["spec"]["priority"] for one in done)


def test_in_airflow(plane, cluster, others, tmp_path, evidence):
    environment = dag_examples.airflow_on(plane.kubeconfig, tmp_path / "airflow")
    runs = dag_examples.ExampleRuns(environment, tmp_path / "airflow.log")
    before = priorities(plane)
    try:
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(runs.run, "queued")
            until(lambda: run.done() or re.search(WAITS, runs.output()), 300)
            assert not run.done(), runs.output()[-6000:]
            cancel(cluster, others)
            done = run.result()
    finally:
        runs.stop()
    assert done["state"] == "success", runs.output()[-6000:]
    assert done["returned"]["best"] == [{"rate": 0.3, "error": pytest.approx(0, abs=0.01)}]
    assert priorities(plane) == sorted([*before, 10, 10, 1000])
    evidence("features", row="Kueue", cell="Airflow example")


def test_in_kfp(plane, cluster, others, tmp_path, evidence):
    before, log = priorities(plane), tmp_path / "kfp.log"
    command = [ROOT / ".venv" / "kfp" / "bin" / "python", ROOT / "examples" / "kfp" / "queued.py", "run", "rate=0.3"]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    with log.open("w") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as run:
        try:
            until(lambda: run.poll() is not None or re.search(WAITS, log.read_text()), 300)
            assert run.poll() is None, log.read_text()[-6000:]
            cancel(cluster, others)
            assert run.wait(180) == 0, log.read_text()[-6000:]
        finally:
            run.kill()
    assert priorities(plane) == sorted([*before, 10, 1000])
    evidence("features", row="Kueue", cell="KFP example")

"""The examples with a queue, run by Airflow and by KFP on a control plane with the real Kueue."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane.queues import create_queue, create_shared_objects
from tests.support import dag_examples
from tests.support.diagnosed_jobs import shell_job
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from trainjob import Queue, RunKey
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import cancel, submit
from trainjob.status import Phase, derive_verdict

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.timeout(600)

WAIT_MESSAGE = (
    r"waiting for quota in queue team; Workload \S+: Pending: couldn't assign flavors .* insufficient unused quota"
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason(kueue=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("queued") / "state", kueue=True) as cluster:
        with contextlib.closing(Client.from_kubeconfig(str(cluster.kubeconfig))) as client:
            create_shared_objects(client)
            create_queue(client, cluster.namespace, "team")
        yield cluster


@pytest.fixture
def cluster(plane):
    with contextlib.closing(Cluster(Connection(kubeconfig=str(plane.kubeconfig)), retry_seconds=20.0)) as opened:
        yield opened


@pytest.fixture
def quota_holder(cluster, unique):
    """Run another training that uses the queue's whole quota."""
    job = shell_job(
        "sleep 600", job={"queue": Queue(name="team", priority_class="urgent")}, resources_per_node={"cpu": 1}
    )
    reference = submit(cluster, job, RunKey("e2e", "kueue", "others", unique))
    wait_until(lambda: derive_verdict(cluster.get_trainjob(reference.name, "default")).phase is Phase.RUNNING, 60)
    yield reference
    cancel(cluster, reference)


def finished_priorities(plane):
    """Return the priorities of the finished trainings in the queue."""
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as client:
        workloads = client.list("Workload", plane.namespace)
    done = [one for one in workloads if any(c["type"] == "Finished" for c in one["status"]["conditions"])]
    return sorted(one["spec"]["priority"] for one in done)


def test_the_example_waits_and_runs_in_airflow(plane, cluster, quota_holder, tmp_path, evidence):
    environment = dag_examples.airflow_environment(plane.kubeconfig, tmp_path / "airflow")
    runs = dag_examples.ExampleRuns(environment, tmp_path / "airflow.log")
    before = finished_priorities(plane)
    try:
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(runs.run, "queued")
            wait_until(lambda: run.done() or re.search(WAIT_MESSAGE, runs.read_log()), 300)
            assert not run.done(), runs.read_log()[-6000:]
            cancel(cluster, quota_holder)
            done = run.result()
    finally:
        runs.stop()
    assert done["state"] == "success", runs.read_log()[-6000:]
    assert done["returned"]["best"] == [{"rate": 0.3, "error": pytest.approx(0, abs=0.01)}]
    assert finished_priorities(plane) == sorted([*before, 10, 10, 1000])
    evidence("features", row="Kueue", cell="Airflow example")


def test_the_example_waits_and_runs_in_kfp(plane, cluster, quota_holder, tmp_path, evidence):
    before, log = finished_priorities(plane), tmp_path / "kfp.log"
    command = [ROOT / ".venv" / "kfp" / "bin" / "python", ROOT / "examples" / "kfp" / "queued.py", "run", "rate=0.3"]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    with log.open("w") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as run:
        try:
            wait_until(lambda: run.poll() is not None or re.search(WAIT_MESSAGE, log.read_text()), 300)
            assert run.poll() is None, log.read_text()[-6000:]
            cancel(cluster, quota_holder)
            assert run.wait(180) == 0, log.read_text()[-6000:]
        finally:
            run.kill()
    assert finished_priorities(plane) == sorted([*before, 10, 1000])
    evidence("features", row="Kueue", cell="KFP example")

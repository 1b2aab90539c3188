"""Two clusters with MultiKueue: a TrainJob of the manager cluster runs on the worker cluster, and ends on both."""

from __future__ import annotations

import base64
import contextlib
import queue
from concurrent.futures import ThreadPoolExecutor

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane.queues import create_queue, create_shared_objects, kueue_object
from tests.support.diagnosed_jobs import shell_job
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.trainjobs import conditions, is_finished, list_pods
from trainjob import RunKey
from trainjob.client import Cluster, Connection
from trainjob.errors import DeadlineExceeded
from trainjob.inspection.live_status import watch
from trainjob.lifecycle import Listener, cancel, submit, wait
from trainjob.manifest import build_trainjob

pytestmark = pytest.mark.timeout(300)

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
JOB = {"queue": "team", "managed_by": MULTIKUEUE}
NAMESPACE = "default"


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    """Start the control planes of the manager cluster and of the worker cluster."""
    if reason := ControlPlane.unavailable_reason(kueue=True):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("multikueue")
    pair = [ControlPlane(folder / name, kueue=True) for name in ("manager", "worker")]
    with contextlib.ExitStack() as stack:
        for plane in pair:
            stack.callback(plane.stop)
        with ThreadPoolExecutor() as pool:
            list(pool.map(ControlPlane.start, pair))
        yield pair


@pytest.fixture(scope="module")
def manager(planes):
    with contextlib.closing(Client.from_kubeconfig(str(planes[0].kubeconfig))) as client:
        create_shared_objects(client)
        yield client


@pytest.fixture(scope="module")
def worker(planes, manager):
    """Configure MultiKueue with the worker cluster, and return a client of that cluster."""
    with contextlib.closing(Client.from_kubeconfig(str(planes[1].kubeconfig))) as client:
        create_shared_objects(client)
        create_queue(client, NAMESPACE, "team")
        kubeconfig = base64.b64encode(planes[1].kubeconfig.read_bytes()).decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "worker"}}
        manager.create({**secret, "data": {"kubeconfig": kubeconfig}}, "kueue-system")
        source = {"kubeConfig": {"location": "worker", "locationType": "Secret"}}
        manager.create(kueue_object("MultiKueueCluster", "worker", spec={"clusterSource": source}))
        manager.create(kueue_object("MultiKueueConfig", "workers", spec={"clusters": ["worker"]}))
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}
        manager.create(
            kueue_object("AdmissionCheck", "multi", spec={"controllerName": MULTIKUEUE, "parameters": parameters})
        )
        create_queue(manager, NAMESPACE, "team", admissionChecksStrategy={"admissionChecks": [{"name": "multi"}]})
        yield client


@pytest.fixture
def cluster(planes):
    connection = Connection(kubeconfig=str(planes[0].kubeconfig), namespace=NAMESPACE)
    with contextlib.closing(Cluster(connection, retry_seconds=20.0)) as opened:
        yield opened


def remote_job(script, **job):
    return shell_job(script, job={**JOB, **job}, resources_per_node={"cpu": 1})


def test_a_job_runs_on_the_worker(manager, worker, job_group, tmp_path):
    """Phases and result of a job come from the worker cluster, on which its pods run."""
    waiter = job_group.submit("remote", remote_job(f"until test -e {tmp_path}/go; do sleep 0.1; done"))
    waiter.wait_for_report("Running")
    name = waiter.reference.name
    assert list_pods(worker, NAMESPACE, name)
    assert list_pods(manager, NAMESPACE, name) == []
    assert manager.find("JobSet", NAMESPACE, name) is None
    (tmp_path / "go").touch()
    assert waiter.outcome.result(90).succeeded
    assert is_finished(manager.get("TrainJob", NAMESPACE, name))
    assert waiter.reports[0].startswith(("Queued", "Pending"))


def test_progress_comes_from_the_worker(planes, worker, cluster, unique, tmp_path):
    """MultiKueue copies the status: a percentage, the remaining time and metrics arrive while the job runs there."""
    script = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    reference = submit(cluster, remote_job(script), RunKey("e2e", "multikueue", "progress", unique))
    found = queue.SimpleQueue()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait, cluster, reference, listener=Listener(on_progress=found.put))
        wait_until(lambda: worker.find("TrainJob", NAMESPACE, reference.name), 90)
        progress = None
        for number, left in ((25, 90), (50, 60)):
            # As the status server of the Trainer writes it; its feature gate is off in the shipped configuration.
            report = {
                "progressPercentage": number,
                "estimatedRemainingSeconds": left,
                "lastUpdatedTime": f"2026-01-01T00:00:{number}Z",
                "metrics": [{"name": "loss", "value": f"0.{number}"}],
            }
            worker.patch("TrainJob", NAMESPACE, reference.name, {"status": {"trainerStatus": report}}, "status")
            progress = found.get(timeout=90)
            assert (progress.percent, progress.remaining, progress.loss) == (number, left, number / 100)
        shown = next(watch(cluster, NAMESPACE, [reference.name]))
        (tmp_path / "go").touch()
        outcome = waiting.result(90)
    assert (shown.percent, shown.progress) == (50, progress)
    assert (outcome.succeeded, outcome.progress) == (True, progress)


def test_the_reason_for_waiting_on_the_worker_is_reported(worker, job_group, tmp_path):
    """A job that waits for the worker's quota is reported with MultiKueue's own message."""
    script = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    local = shell_job(script, job={"queue": "team"}, resources_per_node={"cpu": 1})
    manifest = build_trainjob(local, name="holder", namespace=NAMESPACE)
    worker.create(manifest, NAMESPACE)
    wait_until(lambda: not worker.get("TrainJob", NAMESPACE, "holder")["spec"].get("suspend"), 60)
    waiter = job_group.submit("waits", remote_job("true"))
    report = waiter.wait_for_report("AdmissionCheck multi Pending")
    assert "Queued (WaitingForQuota: waiting for quota in queue team; " in report
    (tmp_path / "go").touch()
    assert waiter.outcome.result(120).succeeded


def test_a_failure_on_the_worker_is_reported(manager, worker, job_group):
    """A failure is reported from its condition alone, because the manager cluster has no pods of the job."""
    waiter = job_group.submit("fails", remote_job("sleep 600", deadline="PT3S"))
    assert isinstance(waiter.job_error(120), DeadlineExceeded)
    job = manager.get("TrainJob", NAMESPACE, waiter.reference.name)
    assert conditions(job)[-1][:3] == ("Failed", "True", "DeadlineExceeded")


def test_a_cancellation_reaches_the_worker(worker, cluster, job_group):
    waiter = job_group.submit("cancelled", remote_job("sleep 600"))
    waiter.wait_for_report("Running")
    assert not cancel(cluster, waiter.reference).had_finished
    assert not waiter.outcome.result(60).succeeded
    wait_until(lambda: worker.find("TrainJob", NAMESPACE, waiter.reference.name) is None, 60)

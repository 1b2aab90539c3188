"""Tests of Kueue on the control plane, for TrainJobs with and without a queue."""

from __future__ import annotations

import os
import signal

import pytest

from control_plane import ControlPlane
from leftovers import all_ended, list_mounts, list_processes_and_ports, open_client
from tests.support.polling import wait_until
from tests.support.trainjobs import conditions, counters, is_finished, shell
from trainjob.errors import ClusterError

QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture(autouse=True)
def kueue_required(request):
    """Skip the test, with the reason, if Kueue cannot run on this machine."""
    trainer = getattr(request.node, "callspec", None) and request.node.callspec.params.get("trainer")
    if reason := ControlPlane.unavailable_reason(trainer or "2.3", kueue=True):
        pytest.skip(reason)


@pytest.mark.parametrize("trainer", ["2.3", "2.2"])
def test_a_queue_holds_the_trainjobs_that_name_it(tmp_path, trainer):
    """A queue holds its TrainJobs, with Trainer 2.2, for which Kueue is built, and with 2.3."""
    before = list_mounts()
    with ControlPlane(tmp_path, trainer=trainer, kueue=True) as cluster, open_client(cluster) as client:
        client.create(shell("true", name="free"), "default")
        held = shell("true", name="held")
        client.create({**held, "metadata": {"name": "held", "labels": {QUEUE: "nope"}}}, "default")
        client.wait_for("TrainJob", "default", "free", is_finished)
        job = client.wait_for("TrainJob", "default", "held", lambda job: counters(job).get("node") == {"suspended": 1})
        assert conditions(job) == [("Suspended", "True", "Suspended", "TrainJob is suspended")]
        [workload] = client.list("Workload", "default")
        messages = [one["message"] for one in workload["status"]["conditions"] if one["type"] == "QuotaReserved"]
        assert messages == ["LocalQueue nope doesn't exist"]
        trail = list_processes_and_ports(cluster)
        assert "kueue" in cluster.info["pids"]
        assert {"kueueWebhook", "kueueHealth"} <= set(cluster.info["ports"])
    assert all_ended(*trail)
    assert list_mounts() == before


def test_the_control_plane_stops_if_kueue_is_killed(tmp_path):
    """If Kueue is killed, the control plane stops, and the log names Kueue."""
    with ControlPlane(tmp_path, kueue=True) as cluster:
        trail = list_processes_and_ports(cluster)
        os.kill(cluster.info["pids"]["kueue"], signal.SIGKILL)
        wait_until(lambda: all_ended(*trail))
    assert "kueue ended (signal: killed)" in (tmp_path / "controlplane.log").read_text()


def test_kueue_does_not_run_with_an_older_trainer(tmp_path):
    with pytest.raises(ClusterError, match=r"Kueue 0\.17 needs Trainer 2\.2 or later"):
        ControlPlane(tmp_path, trainer="2.1", kueue=True).start()

"""One pod at a time: what the others are made of works."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.polling import wait_until
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.timeout(120)
SHELL = {"image": "busybox", "command": ["sh", "-c"]}


def list_trainjobs(cluster, run):
    return cluster.list_trainjobs("default", f"{labels.RUN}={run.id}")


def test_a_pod_hands_on_its_outputs(pods, cluster, kubeconfigs):
    run = pods.new_run()
    pod = pods.start(run, kubeconfigs[0.05], **SHELL, args=["echo hello"])
    assert pod.wait_for_end() == "Succeeded", pods.read_log(pod)
    [job] = list_trainjobs(cluster, run)
    told = pod.executor_output()["parameterValues"]
    assert (told["job"], told["uid"], told["status"]) == (job["metadata"]["name"], job["metadata"]["uid"], "Complete")
    assert "[node-0] hello" in pods.read_log(pod)


def test_a_terminated_pod_takes_its_job_along(pods, cluster, kubeconfigs):
    run = pods.new_run()
    pod = pods.start(run, kubeconfigs[0.05], **SHELL, args=["sleep 600"])
    process = pod.wait_for_process()
    wait_until(lambda: [job for job in list_trainjobs(cluster, run) if derive_verdict(job).phase is Phase.RUNNING])
    os.kill(process, signal.SIGTERM)
    assert pod.wait_for_end() == "Failed"
    assert "was deleted" in pods.read_log(pod)
    assert not list_trainjobs(cluster, run)


def test_a_drained_pods_job_is_kept_for_the_next_try_where_that_is_asked_for(pods, cluster, kubeconfigs, tmp_path):
    run, script = pods.new_run(), f"until test -e {tmp_path}/go; do sleep 0.1; done"
    request = {**SHELL, "args": [script], "on_kill": "keep_on_drain"}
    pod = pods.start(run, kubeconfigs[0.05], **request)
    wait_until(lambda: [job for job in list_trainjobs(cluster, run) if derive_verdict(job).phase is Phase.RUNNING])
    pods.mark_disrupted(pod)
    wait_until(lambda: "is being deleted or disrupted" in pods.read_log(pod))
    pods.delete(pod)
    assert pod.wait_for_end() in ("Failed", None)
    [job] = list_trainjobs(cluster, run)
    again = pods.start(run, kubeconfigs[0.05], 1, **request)
    again.wait_for_process()
    wait_until(lambda: f"adopted, uid {job['metadata']['uid']}" in pods.read_log(again))
    (tmp_path / "go").touch()
    assert again.wait_for_end() == "Succeeded"


def test_a_signal_that_is_faster_than_the_news_of_the_deletion_keeps_it_too(pods, cluster, kubeconfigs):
    """Kubelet and launcher hear of a deletion at the same time, and the kubelet's signal may be first."""
    tries = []
    for _ in range(6):
        run = pods.new_run()
        tries.append((run, pods.start(run, kubeconfigs[0.005], **SHELL, args=["sleep 600"], on_kill="keep_on_drain")))
    for run, pod in tries:
        wait_until(
            lambda run=run: [job for job in list_trainjobs(cluster, run) if derive_verdict(job).phase is Phase.RUNNING],
            60,
        )
        pods.delete(pod)
    for run, pod in tries:
        assert pod.wait_for_end() in ("Failed", None)
        [job] = list_trainjobs(cluster, run)
        assert "deletionTimestamp" not in job["metadata"]
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])

"""The pod of one launcher: its outputs, and an eviction of its pod."""

from __future__ import annotations

from tests.support.polling import wait_until
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

SHELL = {"image": "busybox", "command": ["sh", "-c"]}


def list_trainjobs(cluster, run):
    return cluster.list_trainjobs("default", f"{labels.RUN}={run.id}")


def wait_until_running(cluster, run, seconds=300.0):
    wait_until(lambda: any(derive_verdict(job).phase is Phase.RUNNING for job in list_trainjobs(cluster, run)), seconds)


def test_a_pod_writes_its_outputs(pods, cluster, kubeconfigs):
    run = pods.new_run()
    pod = pods.start(run, kubeconfigs[0.05], **SHELL, args=["echo hello"])
    assert pod.wait_for_end() == "Succeeded", pods.read_log(pod)
    [job] = list_trainjobs(cluster, run)
    outputs = pod.executor_output()["parameterValues"]
    expected = {"job": job["metadata"]["name"], "uid": job["metadata"]["uid"], "status": "Complete"}
    assert {name: outputs[name] for name in expected} == expected
    assert "[node-0] hello" in pods.read_log(pod)


def test_the_job_of_a_drained_pod_is_kept_if_requested(pods, cluster, kubeconfigs, tmp_path):
    run, script = pods.new_run(), f"until test -e {tmp_path}/go; do sleep 0.1; done"
    request = {**SHELL, "args": [script], "on_kill": "keep_on_drain"}
    pod = pods.start(run, kubeconfigs[0.05], **request)
    wait_until_running(cluster, run)
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


def test_the_job_is_kept_if_the_signal_comes_before_the_deletion_event(pods, cluster, kubeconfigs):
    """A signal that the launcher gets before its informer reports the pod's deletion keeps the job too.

    Kubelet and launcher learn of the deletion at the same time, so the kubelet's signal may come first.
    """
    tries = []
    for _ in range(6):
        run = pods.new_run()
        tries.append((run, pods.start(run, kubeconfigs[0.005], **SHELL, args=["sleep 600"], on_kill="keep_on_drain")))
    for run, pod in tries:
        wait_until_running(cluster, run, 60)
        pods.delete(pod)
    for run, pod in tries:
        assert pod.wait_for_end() in ("Failed", None)
        [job] = list_trainjobs(cluster, run)
        assert "deletionTimestamp" not in job["metadata"]
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])

"""Runs that are terminated, whose pods are lost, or whose steps fail."""

from __future__ import annotations

import json
import time

import pytest

from tests.kfp_backend import pipelines
from tests.support.polling import wait_until

pytestmark = pytest.mark.timeout(500)


def is_training(job) -> bool:
    return any(one["ready"] for one in job.get("status", {}).get("jobsStatus", []))


@pytest.mark.parametrize(
    "pipeline",
    [pipelines.terminated, pipelines.terminated_with_cleanup, pipelines.terminated_with_cleanup_keep],
    ids=["plain", "cleanup", "cleanup and keep"],
)
def test_terminating_a_run_deletes_its_trainjob(start, backend, pipeline):
    run = start(pipeline)
    job = run.wait_for_trainjob(is_training)
    begin = time.monotonic()
    run.kfp.terminate_run(run.run_id)
    backend.cluster.wait_until_deleted("TrainJob", backend.namespace, job["metadata"]["name"], seconds=60)
    seconds = time.monotonic() - begin
    print(f"{pipeline.name}: the TrainJob was deleted after {seconds:.1f} s")
    workflow = run.wait_until_ended()
    hooks = {node["name"]: node["phase"] for node in workflow["status"]["nodes"].values() if ".onExit" in node["name"]}
    print(f"{pipeline.name}: Workflow {workflow['status']['phase']}, exit task {json.dumps(hooks, indent=2)}")
    assert workflow["status"]["phase"] == "Failed"


def test_a_lost_pod_is_replaced_and_adopts(start, backend):
    run = start(pipelines.lost)
    job = run.wait_for_trainjob(is_training)
    [pod] = run.list_pods("system-container-impl")
    backend.cluster.delete("Pod", backend.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)
    uid, adopted = pod["metadata"]["uid"], f"adopted, uid {job['metadata']['uid']}"

    def next_launcher():
        return [one for one in run.list_pods("system-container-impl") if one["metadata"]["uid"] != uid]

    wait_until(next_launcher, 60)
    wait_until(lambda: any(adopted in read_started_log(run, one) for one in next_launcher()), 60)
    [volume] = (backend.control_plane.state / "kubelet" / "volumes").glob("kubeflow_shared_*")
    (volume / "finish").touch()
    assert run.wait_until_ended()["status"]["phase"] == "Succeeded"
    assert [one["metadata"]["uid"] for one in run.list_trainjobs()] == [job["metadata"]["uid"]]


def read_started_log(run, pod) -> str:
    """Return a pod's log, empty while its container has not started."""
    return run.read_log(pod) if pod["status"].get("phase") in ("Running", "Succeeded", "Failed") else ""


@pytest.mark.parametrize(
    ("pipeline", "reasons"),
    [
        (pipelines.failing, ["The step failed:", "exit code 3", "log: the data has no column label"]),
        (pipelines.failing_twice, ["attempt 2 of 2 starts in 10 s", "log: no memory on this GPU"]),
        (pipelines.absent_secret, ["the pod has no credentials of the Secret absent: it does not exist"]),
        (pipelines.absent_model, ["The step failed:", "model demo/absent is not on the hub"]),
        (pipelines.absent_claim, ["The step failed:", 'persistentvolumeclaim "absent" not found']),
        (pipelines.absent_namespace, ["The cluster could not be used for this step:", "in namespace absent"]),
    ],
    ids=["exit code", "two attempts", "secret", "model", "claim", "namespace"],
)
def test_a_failure_has_its_reason_in_the_log(start, pipeline, reasons):
    """Both the log of the step and the artifact `executor-logs` have the reason, and no other output is stored."""
    run = start(pipeline)
    assert run.wait_until_ended()["status"]["phase"] == "Failed"
    [*_, launcher] = run.list_pods("system-container-impl")
    log = run.read_log(launcher)
    assert [text for text in reasons if text not in log] == [], log[-3000:]
    stored = run.stored_objects()
    print(f"{pipeline.name}: stored {sorted(stored)}")
    print(log[-1500:])
    [(name, stored_log)] = stored.items()
    assert "executor-logs" in name
    assert [text for text in reasons if text not in stored_log.decode()] == []
    details = run.kfp.get_run(run.run_id)
    errors = [(one.display_name, one.state, one.error) for one in details.run_details.task_details]
    print(f"{pipeline.name}: state {details.state}, error {details.error}, tasks {errors}")

"""A launcher's pod is lost at any time: the engine's next try adopts the TrainJob.

A pod whose object is deleted gets SIGTERM before SIGKILL. Then the launcher may have deleted the TrainJob, and the next
try creates another one. There are never two of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.support.kfp_pods import CONCURRENT_PODS, ONE_SECOND_JOB
from tests.support.trainjob_audit import AuditLog
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels


def key_of(run):
    """Return the run key of a pipeline run's launchers."""
    return RunKey("kfp", run.workflow, "train", run.id)


def end_pod(pods, pod, process, action):
    if action == "killed":
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # the container ends with its first process
    else:
        pods.force_delete(pod)
    return pod.wait_for_end()


def test_a_hundred_losses_at_random_times_cause_no_second_active_job(pods, laptop, cluster, kubeconfigs, plan_pods):
    def attempt(plan):
        latency, moment, action = plan
        description, run = f"{action} after {moment:.2f} s at {latency} s latency", pods.new_run()
        pod = pods.start(run, kubeconfigs[latency], **ONE_SECOND_JOB)
        process = pod.wait_for_process()
        time.sleep(moment)
        phase = end_pod(pods, pod, process, action)
        if phase == "Succeeded":
            return run, pod, description, "too late"
        same = action == "recreated"  # by Argo, while it sees the pod as pending: this is not another try
        again = pods.start(run, kubeconfigs[latency], 0 if same else 1, pod.name if same else "", **ONE_SECOND_JOB)
        phase = again.wait_for_end()
        assert phase == "Succeeded", f"{description}: {phase}\n{pods.read_log(again)}"
        return run, again, description, "adopted" if ": adopted, uid" in pods.read_log(again) else "created"

    with AuditLog(laptop) as audit, ThreadPoolExecutor(CONCURRENT_PODS) as threads:
        tries = list(threads.map(attempt, plan_pods(1.1, ("killed", "deleted", "recreated"))))
        keys = [key_of(run) for run, _, _, _ in tries]
        for key in keys:
            audit.wait_until_current(key)
        created = Counter(len(audit.created_uids(key)) for key in keys)
        max_active = Counter(audit.max_active(key) for key in keys)
    print(Counter(how for _, _, _, how in tries), "TrainJobs ever created for a run:", created)
    assert max_active == {1: len(tries)}
    left = cluster.list_trainjobs("default", f"{labels.ENGINE}=kfp")
    for run, pod, description, _ in tries:
        [job] = [one["metadata"] for one in left if one["metadata"]["labels"][labels.RUN] == run.id]
        outputs = pod.executor_output()["parameterValues"]
        expected = {"job": job["name"], "namespace": "default", "uid": job["uid"], "status": "Complete"}
        assert {name: outputs[name] for name in expected} == expected, description

"""Sweeps: expired and abandoned TrainJobs are deleted, and no others, with concurrent and with killed sweeps."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.runtimes import create_own_runtime, never_restarted_job, replicated_job
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import cancel, submit, wait
from trainjob.manifest import labels
from trainjob.retention import sweep

pytestmark = pytest.mark.since("2.0")
NOW = timedelta(0)
COMMAND = (str(Path(sys.executable).with_name("trainjob")), "sweep", "--namespace")


@pytest.fixture
def cluster(target, namespace):
    """Return the project's own client of the cluster."""
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig, namespace=namespace))) as cluster:
        yield cluster


def key(task):
    return RunKey("conformance", "sweep", task, "run-1")


def shell(script, **more):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)), **more)


def run_to_end(cluster, task, request):
    """Submit a TrainJob, and wait for its end."""
    reference = submit(cluster, request, key(task))
    wait(cluster, reference)
    return reference


def trainjob_names(cluster):
    return {job["metadata"]["name"] for job in cluster.list_trainjobs(cluster.namespace)}


def actions_by_task(results):
    """Return the actions by task, which is the start of the TrainJob's name."""
    return {one.reference.name.rpartition("-")[0]: one.action for one in results}


def test_finished_jobs_are_deleted_after_their_lifetime(client, namespace, cluster):
    """A finished job is deleted after its own lifetime, or the sweep's if it has none. Foreign jobs are kept."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node"))
    where = {"name": runtime["runtime"], "kind": runtime["kind"]}
    now, later = {"ttl_after_success": NOW}, {"ttl_after_success": timedelta(days=1)}
    run_to_end(cluster, "gone", shell("true", **now))
    run_to_end(cluster, "later", shell("true", **later))
    run_to_end(cluster, "silent", shell("true"))
    run_to_end(cluster, "failed", shell("exit 1", runtime=where, ttl_after_failure=NOW, **later))
    run_to_end(cluster, "failed-too", shell("exit 1", runtime=where, **now))
    foreign = run_to_end(cluster, "foreign", shell("true", **now))
    client.patch("TrainJob", namespace, foreign.name, {"metadata": {"labels": {"trainjob.dev/run-key": None}}})
    all_names = trainjob_names(cluster)
    assert actions_by_task(sweep(cluster, dry_run=True)) == {"gone": "deleted", "failed": "deleted"}
    assert trainjob_names(cluster) == all_names
    assert actions_by_task(sweep(cluster)) == {"gone": "deleted", "failed": "deleted"}
    assert sweep(cluster) == []
    assert actions_by_task(sweep(cluster, finished_for=timedelta(hours=1))) == {}
    assert actions_by_task(sweep(cluster, finished_for=NOW)) == {"silent": "deleted", "failed-too": "deleted"}
    assert {name.rpartition("-")[0] for name in trainjob_names(cluster)} == {"later"}
    assert client.find("TrainJob", namespace, foreign.name)


def test_active_jobs_are_deleted_when_their_caller_has_ended(cluster):
    """If its caller has ended, an active job gets its `on_kill` action, unless it was created recently."""
    has_caller_ended = {"over": True, "unknown": None, "active": False, "kept": True, "held": True}
    for task in has_caller_ended:
        submit(cluster, shell("sleep 600", on_kill={"kept": "keep", "held": "suspend"}.get(task, "delete")), key(task))

    def is_over(key):
        return has_caller_ended[key.task]

    assert sweep(cluster, has_ended=is_over) == []  # too young
    assert actions_by_task(sweep(cluster, has_ended=is_over, active_for=NOW)) == {
        "over": "deleted",
        "held": "suspended",
    }
    assert sweep(cluster, has_ended=is_over, active_for=NOW) == []
    assert {name.rpartition("-")[0] for name in trainjob_names(cluster)} == has_caller_ended.keys() - {"over"}


def test_a_finished_job_is_kept_while_its_caller_runs(cluster):
    """A finished job is kept until its caller has ended, because its result may not have been read yet."""
    run_to_end(cluster, "task", shell("true", ttl_after_success=NOW))
    assert sweep(cluster, has_ended=lambda _: False) == []
    assert actions_by_task(sweep(cluster, has_ended=lambda _: None)) == {"task": "deleted"}


def test_adoption_during_a_sweep(cluster):
    """A job that a retry adopts between the sweep's check and its deletion is kept."""
    # Two keys: a name that is used again while its first Job is starting may get no pod (docs/reference/trainer.md).
    for task, request in {"active": shell("sleep 600"), "ended": shell("true", ttl_after_success=NOW)}.items():
        first = submit(cluster, request, key(task))
        if task == "ended":
            wait(cluster, first)
        adopted = []

        def is_over(key, request=request, adopted=adopted):
            if not adopted:  # at the first check the caller has ended; a retry adopts the job right after it
                adopted.append(submit(cluster, request, key))
                return True
            return False

        assert sweep(cluster, has_ended=is_over, active_for=NOW) == []
        assert [(one.uid, one.adopted) for one in adopted] == [(first.uid, True)]
        assert cluster.get_trainjob(first.name, first.namespace)["metadata"]["uid"] == first.uid
        cancel(cluster, first)


class ClusterWithConcurrentSweep(Cluster):
    """A cluster in which another sweep runs right before each change of a TrainJob."""

    def patch_trainjob(self, *arguments, **more):
        sweep(self, has_ended=lambda _: True, active_for=NOW)
        return super().patch_trainjob(*arguments, **more)


def test_submission_after_the_deletion(target, namespace):
    """A retry whose job is deleted right before its adoption creates another attempt."""
    connection = Connection(kubeconfig=target.kubeconfig, namespace=namespace)
    with contextlib.closing(ClusterWithConcurrentSweep(connection)) as cluster:
        first = submit(cluster, shell("sleep 600"), key("task"))
        wait_until(
            lambda: any(pod["status"].get("phase") == "Running" for pod in cluster.list_pods(first.name, namespace))
        )
        again = submit(cluster, shell("sleep 600"), key("task"))
        assert (again.adopted, again.uid == first.uid) == (False, False)
        assert trainjob_names(cluster) == {again.name}


@pytest.mark.since("2.2")
def test_a_model_without_an_export_is_kept(client, namespace, cluster):
    """A Complete job is kept while its model is on its own claim, until an export of that claim has succeeded."""
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    node = replicated_job("node")
    node["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "initializer", "mountPath": "/data"}
    ]
    claims = {"templates": [{"metadata": {"name": "initializer"}, "spec": size}]}
    runtime = create_own_runtime(client, namespace, node, volumeClaimPolicies=[claims])
    where = {"name": runtime["runtime"], "kind": runtime["kind"]}
    trained = run_to_end(cluster, "train", shell("true", runtime=where, ttl_after_success=NOW))
    [kept] = sweep(cluster)
    assert (kept.reference.uid, kept.action) == (trained.uid, "kept")
    assert f"initializer-{trained.name}" in kept.reason
    elsewhere = {labels.EXPORTS: trained.name, labels.MODEL: "s3://models/tickets"}
    run_to_end(cluster, "export-fails", shell("exit 1", annotations=elsewhere))
    assert actions_by_task(sweep(cluster)) == {"train": "kept"}
    run_to_end(cluster, "export", shell("true", annotations=elsewhere))
    assert actions_by_task(sweep(cluster)) == {"train": "deleted"}
    again = run_to_end(cluster, "train", shell("true", runtime=where, ttl_after_success=NOW))
    assert actions_by_task(sweep(cluster)) == {"train": "kept"}
    assert actions_by_task(sweep(cluster, unexported=True)) == {"train": "deleted"}
    assert again.uid != trained.uid


DELETE_ONE_AND_WAIT = """
import sys
from trainjob.client import connect
from trainjob.retention import sweep
sweep(connect(), namespace=sys.argv[1], on_result=lambda one: (print(one, flush=True), sys.stdin.readline()))
"""


def test_concurrent_sweeps_with_a_kill(cluster, target, namespace, evidence):
    """Several sweeps at once, one of which is killed, delete each TrainJob exactly once."""
    for number in range(12):
        submit(cluster, shell("true", ttl_after_success=NOW), key(f"t{number}"))
    for name in trainjob_names(cluster):
        wait_until(lambda name=name: _is_complete(cluster, namespace, name), 300)
    environment = {**os.environ, "KUBECONFIG": target.kubeconfig}

    def start(*command):
        pipe = subprocess.PIPE
        return subprocess.Popen([*command, namespace], env=environment, stdin=pipe, stdout=pipe, text=True)

    with contextlib.ExitStack() as stack:
        victim = stack.enter_context(start(sys.executable, "-c", DELETE_ONE_AND_WAIT))
        output = victim.stdout.readline()  # it has listed all jobs, and deleted one
        one, other = (stack.enter_context(start(*COMMAND)) for _ in range(2))
        victim.send_signal(signal.SIGKILL)
        output += "".join(process.communicate(timeout=300)[0] for process in (one, other))
        assert (victim.wait(), one.returncode, other.returncode) == (-signal.SIGKILL, 0, 0)
    deleted = Counter(re.findall(rf"{namespace}/(\S+?):? deleted", output))
    assert trainjob_names(cluster) == set()
    assert (len(deleted), max(deleted.values())) == (12, 1), output
    evidence(
        "faults", fault="SIGKILL of one of 3 concurrent sweeps", runs=1, result=f"{len(deleted)} of 12 deleted once"
    )


def _is_complete(cluster, namespace, name):
    found = cluster.get_trainjob(name, namespace)
    return any(one["type"] == "Complete" for one in (found.get("status") or {}).get("conditions") or ())


def test_sweeps_during_submissions(cluster, evidence):
    """Concurrent sweeps never delete a job that a caller has submitted and still uses."""
    callers, lost, random_numbers = Counter(), [], random.Random(7)  # noqa: S311 - no secret
    stop, swept, uses = threading.Event(), Counter(), Counter()

    def submit_and_use(task, pauses):
        for pause in pauses:
            callers[task] += 1  # from here on its engine reports this caller as running
            own_job = submit(cluster, shell("sleep 600"), key(task))
            uses[task] += 1
            stop.wait(pause)
            found = cluster.get_trainjob(own_job.name, own_job.namespace)
            if found is None or found["metadata"]["uid"] != own_job.uid:
                lost.append(own_job)
            callers[task] -= 1
            stop.wait(pause)

    def is_over(key):
        over = not callers[key.task]
        stop.wait(random_numbers.uniform(0, 0.03))  # much can happen before the sweep acts on this
        return over

    def sweep_again_and_again():
        while not stop.is_set():
            for one in sweep(cluster, has_ended=is_over, active_for=NOW):
                swept[one.action] += 1

    with ThreadPoolExecutor(7) as pool:
        users = [
            pool.submit(submit_and_use, f"t{number}", [random_numbers.uniform(0, 0.2) for _ in range(8)])
            for number in range(4)
        ]
        sweepers = [pool.submit(sweep_again_and_again) for _ in range(3)]
        try:
            for one in users:
                one.result(120)
            wait_until(lambda: not trainjob_names(cluster), 300)
        finally:
            stop.set()
        for one in sweepers:
            one.result(300)
    assert lost == []
    assert sum(uses.values()) == 32
    assert swept["deleted"] >= 4
    result = f"{swept['deleted']} deleted, {len(lost)} of {sum(uses.values())} deleted while in use"
    evidence("faults", fault="3 sweeps while 4 threads submit and end jobs", runs=1, result=result)

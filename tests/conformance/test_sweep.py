"""Sweeping: what nobody needs any more goes, and nothing else does, however many sweep and whoever is killed."""

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
    """Submits a TrainJob and waits for its end."""
    reference = submit(cluster, request, key(task))
    wait(cluster, reference)
    return reference


def trainjob_names(cluster):
    return {job["metadata"]["name"] for job in cluster.list_trainjobs(cluster.namespace)}


def actions_by_task(results):
    """What was done, by task: the TrainJob's name begins with it."""
    return {one.reference.name.rpartition("-")[0]: one.done for one in results}


def test_finished_ones_go_when_their_time_is_over(client, namespace, cluster):
    """One that has ended goes when its own time is over, or the sweep's where it has none; not before; ours only."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node"))
    where = {"name": runtime["runtime"], "kind": runtime["kind"]}
    now, later = {"ttl_after_success": NOW}, {"ttl_after_success": timedelta(days=1)}
    run_to_end(cluster, "gone", shell("true", **now))
    run_to_end(cluster, "later", shell("true", **later))
    run_to_end(cluster, "silent", shell("true"))
    run_to_end(cluster, "failed", shell("exit 1", runtime=where, ttl_after_failure=NOW, **later))
    run_to_end(cluster, "failed-too", shell("exit 1", runtime=where, **now))
    foreign = run_to_end(cluster, "foreign", shell("true", **now))
    client.patch("TrainJob", namespace, foreign.name, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}})
    everyone = trainjob_names(cluster)
    assert actions_by_task(sweep(cluster, dry_run=True)) == {"gone": "deleted", "failed": "deleted"}
    assert trainjob_names(cluster) == everyone
    assert actions_by_task(sweep(cluster)) == {"gone": "deleted", "failed": "deleted"}
    assert sweep(cluster) == []
    assert actions_by_task(sweep(cluster, finished_for=timedelta(hours=1))) == {}
    assert actions_by_task(sweep(cluster, finished_for=NOW)) == {"silent": "deleted", "failed-too": "deleted"}
    assert {name.rpartition("-")[0] for name in trainjob_names(cluster)} == {"later"}
    assert client.find("TrainJob", namespace, foreign.name)


def test_ones_at_work_go_when_their_asker_has_ended(cluster):
    """One at work goes when who asked for it is known to have ended, as `on_kill` says, and is not young."""
    answers = {"over": True, "unknown": None, "at-work": False, "kept": True, "held": True}
    for task in answers:
        submit(cluster, shell("sleep 600", on_kill={"kept": "keep", "held": "suspend"}.get(task, "delete")), key(task))

    def is_over(key):
        return answers[key.task]

    assert sweep(cluster, has_ended=is_over) == []  # too young
    assert actions_by_task(sweep(cluster, has_ended=is_over, active_for=NOW)) == {
        "over": "deleted",
        "held": "suspended",
    }
    assert sweep(cluster, has_ended=is_over, active_for=NOW) == []
    assert {name.rpartition("-")[0] for name in trainjob_names(cluster)} == answers.keys() - {"over"}


def test_a_finished_one_stays_while_its_asker_is_at_work(cluster):
    """One whose time is over stays until who asked for it has ended, too, as its result may not be read yet."""
    run_to_end(cluster, "task", shell("true", ttl_after_success=NOW))
    assert sweep(cluster, has_ended=lambda _: False) == []
    assert actions_by_task(sweep(cluster, has_ended=lambda _: None)) == {"task": "deleted"}


def test_who_takes_it_over_between_question_and_deletion_keeps_it(cluster):
    """A retry that adopts after the sweep has asked about it, and before it deletes, keeps the TrainJob."""
    # Two keys: a name that is used again while its first Job is just starting may get no pod (docs/trainer.md).
    for task, request in {"at-work": shell("sleep 600"), "ended": shell("true", ttl_after_success=NOW)}.items():
        first = submit(cluster, request, key(task))
        if task == "ended":
            wait(cluster, first)
        adopted = []

        def is_over(key, request=request, adopted=adopted):
            if not adopted:  # asked about once, it has ended; the retry comes right after the answer
                adopted.append(submit(cluster, request, key))
                return True
            return False

        assert sweep(cluster, has_ended=is_over, active_for=NOW) == []
        assert [(one.uid, one.adopted) for one in adopted] == [(first.uid, True)]
        assert cluster.get_trainjob(first.name, first.namespace)["metadata"]["uid"] == first.uid
        cancel(cluster, first)


class ClusterWithConcurrentSweep(Cluster):
    """A cluster in which somebody sweeps right before each change of a TrainJob."""

    def patch_trainjob(self, *arguments, **more):
        sweep(self, has_ended=lambda _: True, active_for=NOW)
        return super().patch_trainjob(*arguments, **more)


def test_who_comes_right_after_the_deletion_makes_another(target, namespace):
    """A retry that has found the TrainJob, and takes it over right after its deletion, makes another attempt."""
    connection = Connection(kubeconfig=target.kubeconfig, namespace=namespace)
    with contextlib.closing(ClusterWithConcurrentSweep(connection)) as engine:
        first = submit(engine, shell("sleep 600"), key("task"))
        wait_until(
            lambda: any(pod["status"].get("phase") == "Running" for pod in engine.list_pods(first.name, namespace))
        )
        again = submit(engine, shell("sleep 600"), key("task"))
        assert (again.adopted, again.uid == first.uid) == (False, False)
        assert trainjob_names(engine) == {again.name}


@pytest.mark.since("2.2")
def test_a_model_that_nobody_has_exported_stays(client, namespace, cluster):
    """A complete one stays while its model is on a claim that goes with it, until the export of that claim is done."""
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
sweep(connect(), namespace=sys.argv[1], tell=lambda one: (print(one, flush=True), sys.stdin.readline()))
"""


def test_many_sweep_and_one_is_killed(cluster, target, namespace, evidence):
    """Of several sweeps at once, one of them killed in the middle, each TrainJob is deleted once, by any of them."""
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
        told = victim.stdout.readline()  # it has listed all of them, and deleted one
        one, other = (stack.enter_context(start(*COMMAND)) for _ in range(2))
        victim.send_signal(signal.SIGKILL)
        told += "".join(process.communicate(timeout=300)[0] for process in (one, other))
        assert (victim.wait(), one.returncode, other.returncode) == (-signal.SIGKILL, 0, 0)
    deleted = Counter(re.findall(rf"{namespace}/(\S+?):? deleted", told))
    assert trainjob_names(cluster) == set()
    assert (len(deleted), max(deleted.values())) == (12, 1), told
    evidence(
        "faults", fault="SIGKILL of one of 3 concurrent sweeps", runs=1, result=f"{len(deleted)} of 12 deleted once"
    )


def _is_complete(cluster, namespace, name):
    found = cluster.get_trainjob(name, namespace)
    return any(one["type"] == "Complete" for one in (found.get("status") or {}).get("conditions") or ())


def test_sweeps_beside_submits(cluster, evidence):
    """While many ask for TrainJobs, use them and end, at random, and several sweep, nobody loses what it waits for."""
    wanted, lost, random_one = Counter(), [], random.Random(7)  # noqa: S311 - no secret
    stop, swept, uses = threading.Event(), Counter(), Counter()

    def asker(task, pauses):
        for pause in pauses:
            wanted[task] += 1  # its engine has it at work from here on
            mine = submit(cluster, shell("sleep 600"), key(task))
            uses[task] += 1
            stop.wait(pause)
            found = cluster.get_trainjob(mine.name, mine.namespace)
            if found is None or found["metadata"]["uid"] != mine.uid:
                lost.append(mine)
            wanted[task] -= 1
            stop.wait(pause)

    def is_over(key):
        over = not wanted[key.task]
        stop.wait(random_one.uniform(0, 0.03))  # much may happen before the answer is acted on
        return over

    def sweeper():
        while not stop.is_set():
            for one in sweep(cluster, has_ended=is_over, active_for=NOW):
                swept[one.action] += 1

    with ThreadPoolExecutor(7) as pool:
        askers = [
            pool.submit(asker, f"t{number}", [random_one.uniform(0, 0.2) for _ in range(8)]) for number in range(4)
        ]
        sweepers = [pool.submit(sweeper) for _ in range(3)]
        try:
            for one in askers:
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

"""New jobs that get the name of a deleted job whose JobSet or pods still exist."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, is_finished
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener, cancel, plan_resubmission, submit, wait
from trainjob.retention import sweep
from trainjob.status import Category, Phase
from trainjob.status.failure_rules import EARLIER_JOBSET

pytestmark = pytest.mark.since("2.0")


@pytest.fixture
def cluster(target):
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        yield cluster


@pytest.fixture
def submit_script(cluster, namespace):
    """Return a function that submits a script under the run key of this test."""

    def submit_script(script, **more):
        request = TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)))
        return submit(cluster, request, RunKey("test", "names", "step", namespace), namespace=namespace, **more)

    return submit_script


@pytest.mark.parametrize("script", ["true", "exit 1"])
def test_the_end_of_an_earlier_jobset_is_not_the_result(client, namespace, cluster, submit_script, script):
    """A job gets the end of a terminating JobSet, with its time. The waiter reports an interruption."""
    first = submit_script(script)
    ended = client.wait_for("TrainJob", namespace, first.name, is_finished)["status"]["conditions"][0]
    client.add_finalizer("JobSet", namespace, first.name)
    assert cluster.delete_trainjob(first.name, namespace, first.uid)
    client.wait_for("JobSet", namespace, first.name, lambda jobset: "deletionTimestamp" in jobset["metadata"])
    wait_until(lambda: f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}" > ended["lastTransitionTime"])

    second = submit_script(script, first_submission=True)  # the caller is wrong: the run key was used before
    assert (second.name, second.uid == first.uid) == (first.name, False)
    inherited = client.wait_for("TrainJob", namespace, second.name, is_finished)["status"]["conditions"][0]
    assert inherited == ended
    outcome = wait(cluster, second)
    assert (outcome.phase, outcome.category, outcome.reason) == (Phase.FAILED, Category.INFRASTRUCTURE, EARLIER_JOBSET)
    assert client.find("TrainJob", namespace, second.name) is None

    resubmission = plan_resubmission(second, outcome, 1)
    client.remove_finalizers("JobSet", namespace, first.name)
    lines = []
    third = submit_script("echo ran", earlier=resubmission)
    assert wait(cluster, third, listener=Listener(on_log=lines.append)).succeeded
    assert [line.text for line in lines] == ["ran"]


def delete_with_kubectl(client, cluster, reference):
    client.delete("TrainJob", reference.namespace, reference.name, propagationPolicy="Background")


def delete_with_cancel(client, cluster, reference):
    assert not cancel(cluster, reference).had_finished


def delete_with_sweep(client, cluster, reference):
    results = sweep(cluster, namespace=reference.namespace, active_for=timedelta(0), has_ended=lambda _: True)
    assert len(results) == 1


@pytest.mark.only("laptop", "controlplane")
@pytest.mark.parametrize("delete", [delete_with_kubectl, delete_with_cancel, delete_with_sweep])
def test_a_job_that_is_deleted_and_submitted_again_at_once_never_overlaps(
    client, namespace, cluster, submit_script, tmp_path, delete, evidence
):
    """Three concurrent submissions right after a deletion create one job. It starts when the old pod has saved."""
    log, rounds = tmp_path / "log", 3
    script = f"""
        trap 'sleep 1; echo "end $HOSTNAME" >> {log}; exit 0' TERM
        echo "start $HOSTNAME" >> {log}
        while :; do sleep 0.05; done"""
    reference = submit_script(script, first_submission=True)
    with ThreadPoolExecutor(3) as pool:
        for number in range(1, rounds + 1):
            wait_until(lambda starts=number: log.exists() and log.read_text().count("start") == starts)
            delete(client, cluster, reference)
            again = list(pool.map(lambda _: submit_script(script), range(3)))
            assert len({each.uid for each in again} - {reference.uid}) == 1
            assert [each.adopted for each in again].count(False) == 1
            reference = again[0]
    wait_until(lambda: log.read_text().count("start") == rounds + 1)
    lines = [line.split()[0] for line in log.read_text().splitlines()]
    assert lines == ["start", "end"] * rounds + ["start"]
    fault = f"a job that is deleted ({delete.__name__[12:]}) and submitted again three times at once"
    evidence("faults", fault=fault, runs=rounds, result="no pods of both jobs ran at the same time")

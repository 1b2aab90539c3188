"""Requests of a submission, in the normal case and where a deleted TrainJob may have left objects."""

from __future__ import annotations

import contextlib

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import RunKey, cancel, submit, wait

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]))
TRAINJOBS, PODS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", "/api/v1/namespaces/default/pods"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
LIST, CREATE, LIST_PODS = f"GET {TRAINJOBS}", f"POST {TRAINJOBS}", f"GET {PODS}"


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def counted(proxy):
    """Yield a client whose requests the proxy counts."""
    connection = Connection(kubeconfig_text=proxy.kubeconfig_text)
    with contextlib.closing(Cluster(connection, retry_seconds=5.0)) as opened:
        yield opened


@pytest.fixture
def key(unique):
    return RunKey("test", "requests", unique, "run-1")


def saving_job(folder, **fields):
    """Return a request whose pod saves after SIGTERM until the file `saved` exists."""
    script = (
        f"trap 'until test -e {folder}/saved; do sleep 0.05; done; exit 0' TERM; touch {folder}/up; sleep 600 & wait"
    )
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]), **fields)


def get_jobset(reference):
    return f"GET {JOBSETS}/{reference.name}"


def test_a_first_submission_sends_two_requests(counted, proxy, key):
    assert not submit(counted, JOB, key, first_submission=True).adopted
    assert proxy.request_counts == {LIST: 1, CREATE: 1}


def test_any_other_submission_also_looks_for_jobs_without_labels_a_jobset_and_pods(counted, proxy, key):
    reference = submit(counted, JOB, key)
    assert proxy.request_counts == {LIST: 2, get_jobset(reference): 1, LIST_PODS: 1, CREATE: 1}


def test_a_first_submission_that_finds_a_trainjob_looks_for_a_jobset_and_pods(counted, proxy, cluster, key):
    """The caller is wrong about the run key, and the TrainJob of another request is deleted."""
    trainer = JOB.trainer.model_copy(update={"resources_per_node": {"memory": "64Mi"}})
    earlier = submit(cluster, JOB.model_copy(update={"trainer": trainer}), key)
    reference = submit(counted, JOB, key, first_submission=True)
    assert (reference.name, reference.uid == earlier.uid) == (earlier.name, False)
    assert proxy.request_counts[get_jobset(reference)] >= 1
    assert proxy.request_counts[LIST_PODS] >= 1


def test_after_a_failed_creation_a_first_submission_looks_for_a_jobset_and_pods(counted, proxy, cluster, key):
    """The creation may have been executed, and its TrainJob deleted since then."""
    proxy.responses[CREATE] = (503, b"{}")
    calls = []

    def delete_what_was_created(*name):
        calls.append(name)
        if len(calls) == 2:
            proxy.responses.clear()

    reference = submit(counted, JOB, key, first_submission=True, before_create=delete_what_was_created)
    assert proxy.request_counts == {LIST: 3, CREATE: 2, get_jobset(reference): 1, LIST_PODS: 1}


@pytest.mark.parametrize("first_submission", [False, True])
def test_a_submission_whose_response_is_lost_does_not_run_beside_its_deleted_trainjob(
    counted, proxy, cluster, key, tmp_path, first_submission
):
    """The TrainJob of the lost response is deleted before the second list, and its pod still saves."""
    proxy.replacements[CREATE] = [b'{"cut": "o']
    lists = []
    list_trainjobs = counted.list_trainjobs

    def list_after_the_deletion(*arguments):
        lists.append(arguments)
        if len(lists) == (2 if first_submission else 3):
            [created] = list_trainjobs(*arguments)
            wait_until((tmp_path / "up").exists)
            cluster.delete_trainjob(created["metadata"]["name"], "default", None)
        return list_trainjobs(*arguments)

    counted.list_trainjobs = list_after_the_deletion
    with pytest.raises(WaitTimeout, match="still being deleted"):
        submit(counted, saving_job(tmp_path), key, first_submission=first_submission, timeout=1.0)
    (tmp_path / "saved").touch()


@pytest.mark.parametrize("deleted_by", ["this submission", "another process"])
def test_pods_of_a_deleted_later_attempt_are_waited_for(cluster, key, tmp_path, deleted_by):
    """The first attempt was swept, so the next attempt has its number and name, not those of the deleted one."""
    first = submit(cluster, TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"])), key)
    assert wait(cluster, first).succeeded
    second = submit(cluster, saving_job(tmp_path), key)
    wait_until((tmp_path / "up").exists)
    assert cluster.delete_trainjob(first.name, first.namespace, first.uid)
    wait_until(lambda: not cluster.has_dependents(first.name, first.namespace))
    known = None
    if deleted_by == "another process":
        known = second
        assert not cancel(cluster, second).had_finished
    with pytest.raises(WaitTimeout, match="still being deleted"):
        submit(cluster, JOB, key, known=known, timeout=1.0)
    (tmp_path / "saved").touch()
    assert submit(cluster, JOB, key, known=known).name == first.name

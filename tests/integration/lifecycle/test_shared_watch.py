"""Tests of the faults that a long wait survives: broken streams, expired versions, temporary refusals."""

from __future__ import annotations

import threading

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener, submit, wait
from trainjob.local import LocalCluster


@pytest.fixture(scope="module")
def trainjob_cluster(tmp_path_factory):
    """Start a laptop cluster for this module, because faults apply to all its clients."""
    with LocalCluster(tmp_path_factory.mktemp("faults")) as laptop:
        yield laptop


@pytest.fixture(scope="module")
def own_cluster(trainjob_cluster):
    cluster = Cluster(Connection(kubeconfig=str(trainjob_cluster.kubeconfig)), retry_seconds=10.0)
    yield cluster
    cluster.close()


def shell(script):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))


@pytest.mark.parametrize(
    ("answer", "expired"),
    [
        (None, 0),
        (None, 2),
        ({"code": 429, "times": 3, "verb": "watch", "retry_after": 0}, 0),
        ({"code": 503, "times": 3, "verb": "list"}, 2),
        ({"code": 401, "times": 4, "verb": "list", "resource": "trainjobs"}, 2),
        ({"code": 403, "times": 2, "verb": "list", "resource": "trainjobs"}, 2),
        ({"code": 404, "times": 2, "verb": "list", "resource": "trainjobs"}, 2),
        ({"code": 410, "times": 3, "verb": "watch"}, 0),
    ],
    ids=["dropped", "expired", "too-many-requests", "unavailable", "401-a-while", "403-a-while", "404-a-while", "410"],
)
def test_the_wait_sees_the_end_of_the_job_after_each_fault(
    own_cluster, trainjob_faults, unique, tmp_path, evidence, request, answer, expired
):
    go = tmp_path / "go"
    script = f"echo started; while [ ! -e {go} ]; do sleep 0.05; done; echo finished"
    reference = submit(own_cluster, shell(script), RunKey("test", "watch", unique, "run-1"))
    lines = []

    def break_watches():
        if answer:
            trainjob_faults.answer(**answer)
        if expired:
            trainjob_faults.expire_watches(expired)
        trainjob_faults.drop_watches()
        go.touch()

    def on_log(line):
        lines.append(line.text)
        if line.text == "started":
            threading.Thread(target=break_watches).start()

    outcome = wait(own_cluster, reference, listener=Listener(on_log=on_log))
    assert outcome.succeeded
    assert lines == ["started", "finished"]
    name = request.node.callspec.id
    evidence(
        "faults", fault=f"whole wait on the laptop cluster: {name}", runs=1, result=f"reported {outcome.phase.value}"
    )


@pytest.mark.parametrize("code", [500, 503])
def test_a_creation_whose_response_is_lost_creates_one_job(own_cluster, trainjob_faults, unique, code):
    trainjob_faults.answer(code, verb="create", resource="trainjobs", executed=True)
    reference = submit(own_cluster, shell("true"), RunKey("test", "watch", unique, "run-1"))
    assert reference.adopted
    assert len(own_cluster.list_trainjobs("default", f"trainjob.dev/task={unique}")) == 1
    assert wait(own_cluster, reference).succeeded


def test_without_the_permission_to_watch_the_wait_lists(own_cluster, trainjob_faults, unique):
    trainjob_faults.answer(403, times=1000, verb="watch")
    reference = submit(own_cluster, shell("true"), RunKey("test", "watch", unique, "run-1"))
    assert wait(own_cluster, reference).succeeded

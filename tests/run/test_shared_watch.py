"""Waiting through what a long wait meets: broken streams, expired versions, refusals for a while."""

from __future__ import annotations

import threading

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.cluster import Cluster, Connection
from trainjob.local import LocalCluster
from trainjob.run import Listener, submit, wait


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A laptop cluster of one's own, as faults are for all of its clients."""
    with LocalCluster(tmp_path_factory.mktemp("faults")) as laptop:
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), patience=10.0)
        yield cluster
        cluster.close()


LIST = {"verb": "list", "resource": "trainjobs"}


def fault(cluster, **wanted):
    cluster._door.ask("POST", "/faults", doing="switch a fault on", body=wanted)


def shell(script):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))


@pytest.mark.parametrize(
    "wanted",
    [
        {"drop_watches": True},
        {"expire_watches": 2, "drop_watches": True},
        {"answer": {"code": 429, "times": 3, "verb": "watch", "retry_after": 0}, "drop_watches": True},
        {"answer": {"code": 503, "times": 3, "verb": "list"}, "expire_watches": 2, "drop_watches": True},
        {"answer": {"code": 401, "times": 4, **LIST}, "expire_watches": 2, "drop_watches": True},
        {"answer": {"code": 403, "times": 2, **LIST}, "expire_watches": 2, "drop_watches": True},
        {"answer": {"code": 404, "times": 2, **LIST}, "expire_watches": 2, "drop_watches": True},
        {"answer": {"code": 410, "times": 3, "verb": "watch"}, "drop_watches": True},
    ],
    ids=["dropped", "expired", "too-many-requests", "unavailable", "401-a-while", "403-a-while", "404-a-while", "410"],
)
def test_the_end_is_seen_all_the_same(own, unique, tmp_path, evidence, request, wanted):
    go = tmp_path / "go"
    script = f"echo started; while [ ! -e {go} ]; do sleep 0.05; done; echo finished"
    reference = submit(own, shell(script), RunKey("test", "watch", unique, "run-1"))
    lines = []

    def on_log(line):
        lines.append(line.text)
        if line.text == "started":
            threading.Thread(target=lambda: (fault(own, **wanted), go.touch())).start()

    outcome = wait(own, reference, listener=Listener(on_log=on_log))
    assert outcome.succeeded
    assert lines == ["started", "finished"]
    name = request.node.callspec.id
    evidence("faults", fault=f"whole wait on the laptop cluster: {name}", runs=1, result=f"told {outcome.phase.value}")


@pytest.mark.parametrize("code", [500, 503])
def test_a_creation_whose_answer_is_lost_makes_one_job(own, unique, code):
    fault(own, answer={"code": code, "verb": "create", "resource": "trainjobs", "carried_out": True})
    reference = submit(own, shell("true"), RunKey("test", "watch", unique, "run-1"))
    assert reference.adopted
    assert len(own.list_trainjobs("default", f"trainjob.dev/task={unique}")) == 1
    assert wait(own, reference).succeeded


def test_without_the_right_to_watch_one_list_serves_all(own, unique):
    fault(own, answer={"code": 403, "times": 1000, "verb": "watch"})
    try:
        reference = submit(own, shell("true"), RunKey("test", "watch", unique, "run-1"))
        assert wait(own, reference).succeeded
    finally:
        own._door.ask("DELETE", "/faults", doing="clear faults")

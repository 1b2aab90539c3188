"""Cancelling through the engine: the training ends for good, and the same step can be asked for again at once."""

from __future__ import annotations

import contextlib

import pytest
from client import path_of
from trainjobs import IMAGE, pods_of, shell

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.cluster import Cluster, Connection
from trainjob.run import Adopt, Listener, cancel, submit, wait

pytestmark = pytest.mark.since("2.0")


@pytest.fixture
def engine(target):
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        yield cluster


def ask(engine, namespace, script, **arguments):
    request = TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)))
    return submit(engine, request, RunKey("test", "cancel", "step", namespace), namespace=namespace, **arguments)


def running_pod(client, namespace, name):
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    return client.until(
        "Pod", namespace, "", lambda pod: pod["status"].get("phase") == "Running", labelSelector=selector
    )


def test_a_cancelled_training_does_not_start_again(client, namespace, engine):
    """Cancelled by the engine, a running job is gone at once, its JobSet and pods follow, and nothing is made anew."""
    job = ask(engine, namespace, "sleep 600")
    pod = running_pod(client, namespace, job.name)
    version = client.ask("GET", path_of("JobSet", namespace)).body["metadata"]["resourceVersion"]
    assert cancel(engine, job)
    assert client.find("TrainJob", namespace, job.name) is None
    client.until_gone("Pod", namespace, pod["metadata"]["name"])
    client.until_gone("JobSet", namespace, job.name)
    client.create(shell("true", name="marker", suspend=True), namespace)  # its JobSet ends what the watch has to tell
    told = []
    for event in client.stream(path_of("JobSet", namespace), resourceVersion=version):
        told.append((event["type"], event["object"]["metadata"]["name"]))
        if told[-1][1] == "marker":
            break
    assert [name for kind, name in told if kind == "ADDED"] == ["marker"]
    assert not pods_of(client, namespace, job.name)


def test_the_same_step_can_be_asked_for_again_at_once(client, namespace, engine):
    """A step that is cancelled and asked for again at once runs anew, with its old name, and takes over no old end."""
    first = ask(engine, namespace, "echo ran")
    assert wait(engine, first).succeeded
    assert cancel(engine, first)
    lines = []
    second = ask(engine, namespace, "echo ran", adopt=Adopt.RUNNING)
    assert second.name == first.name
    assert second.uid != first.uid
    assert wait(engine, second, listener=Listener(on_log=lines.append)).succeeded
    assert [line.text for line in lines] == ["ran"]


@pytest.mark.since("2.1")
def test_a_job_without_its_runtime_can_be_cancelled(client, namespace, engine):
    """A job whose runtime somebody deleted can be cancelled all the same."""
    spec = client.get("ClusterTrainingRuntime", None, "torch-distributed")
    runtime = {**spec, "kind": "TrainingRuntime", "metadata": {"name": "own", "labels": spec["metadata"]["labels"]}}
    client.create(runtime, namespace)
    request = TrainJob(
        trainer=CustomTrainerContainer(image=IMAGE, command=("sleep", "600")),
        runtime={"name": "own", "kind": "TrainingRuntime"},
    )
    job = submit(engine, request, RunKey("test", "cancel", "orphan", namespace), namespace=namespace)
    pod = running_pod(client, namespace, job.name)
    client.delete("TrainingRuntime", namespace, "own")
    assert cancel(engine, job)
    client.until_gone("TrainJob", namespace, job.name)
    client.until_gone("Pod", namespace, pod["metadata"]["name"])

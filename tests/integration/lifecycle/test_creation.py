"""What a caller learns and can say about the one request that creates a TrainJob."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import RunKey, submit
from trainjob.manifest import labels

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def make_run_key(unique):
    return RunKey("test", "workflow", unique, "run-1")


def list_trainjobs(cluster, unique):
    return cluster.list_trainjobs("default", f"{labels.RUN_KEY}={make_run_key(unique).digest}")


def test_a_caller_is_told_the_name_before_the_request_and_only_then(cluster, unique):
    told = []

    def before(name, namespace):
        told.append((name, namespace, len(list_trainjobs(cluster, unique))))

    reference = submit(cluster, JOB, make_run_key(unique), before_create=before)
    assert told == [(reference.name, "default", 0)]
    assert submit(cluster, JOB, make_run_key(unique), before_create=before).adopted
    assert len(told) == 1


def test_what_the_caller_raises_then_creates_nothing(cluster, unique):
    def before(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(cluster, JOB, make_run_key(unique), before_create=before)
    assert not list_trainjobs(cluster, unique)


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop.server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def kubeconfig_through(laptop, proxy):
    kubeconfig = json.loads(laptop.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"] = {"server": proxy.url}
    return json.dumps(kubeconfig)


def test_a_creation_that_is_asked_for_again_is_told_again(laptop, cluster, unique, proxy):
    told, path = [], "POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    proxy.answers[path] = (503, b"{}")

    def before(*name):
        told.append(name)
        if len(told) == 2:
            proxy.answers.clear()

    with contextlib.closing(Cluster(Connection(kubeconfig_json=kubeconfig_through(laptop, proxy)))) as opened:
        reference = submit(opened, JOB, make_run_key(unique), before_create=before)
    assert told == [(reference.name, "default")] * 2


@pytest.fixture
def owner(cluster, unique):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique}}
    meta = cluster._http.request("POST", CONFIGMAPS, doing="create a config map", body=body)["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": unique, "uid": meta["uid"]}


def test_an_owner_takes_its_job_along_and_is_no_part_of_the_request(cluster, unique, owner):
    reference = submit(cluster, JOB, make_run_key(unique), owner=owner)
    [job] = list_trainjobs(cluster, unique)
    assert job["metadata"]["ownerReferences"] == [owner]
    assert submit(cluster, JOB, make_run_key(unique)).uid == reference.uid  # without an owner: the same request
    cluster._http.request("DELETE", f"{CONFIGMAPS}/{unique}", doing="delete a config map")
    wait_until(lambda: not list_trainjobs(cluster, unique))


def test_without_a_uid_whatever_has_the_name_is_deleted(cluster, unique):
    reference = submit(cluster, JOB, make_run_key(unique))
    assert cluster.delete_trainjob(reference.name, "default", None)
    assert not cluster.delete_trainjob(reference.name, "default", None)
    assert not list_trainjobs(cluster, unique)

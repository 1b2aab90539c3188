"""Tests of `before_create` and `owner`, and of the request that creates a TrainJob."""

from __future__ import annotations

import contextlib

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


def test_before_create_is_called_with_the_name_before_the_request_and_not_for_an_adoption(cluster, unique):
    calls = []

    def before(name, namespace):
        calls.append((name, namespace, len(list_trainjobs(cluster, unique))))

    reference = submit(cluster, JOB, make_run_key(unique), before_create=before)
    assert calls == [(reference.name, "default", 0)]
    assert submit(cluster, JOB, make_run_key(unique), before_create=before).adopted
    assert len(calls) == 1


def test_an_exception_of_before_create_prevents_the_creation(cluster, unique):
    def before(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(cluster, JOB, make_run_key(unique), before_create=before)
    assert not list_trainjobs(cluster, unique)


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


def test_before_create_is_called_again_before_a_repeated_request(laptop, cluster, unique, proxy):
    calls, path = [], "POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    proxy.responses[path] = (503, b"{}")

    def before(*name):
        calls.append(name)
        if len(calls) == 2:
            proxy.responses.clear()

    with contextlib.closing(Cluster(Connection(kubeconfig_text=proxy.kubeconfig_text))) as opened:
        reference = submit(opened, JOB, make_run_key(unique), before_create=before)
    assert calls == [(reference.name, "default")] * 2


@pytest.fixture
def owner(cluster, unique):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique}}
    meta = cluster._http.request("POST", CONFIGMAPS, doing="create a config map", body=body)["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": unique, "uid": meta["uid"]}


def test_a_job_is_deleted_with_its_owner_which_does_not_change_the_request(cluster, unique, owner):
    reference = submit(cluster, JOB, make_run_key(unique), owner=owner)
    [job] = list_trainjobs(cluster, unique)
    assert job["metadata"]["ownerReferences"] == [owner]
    assert submit(cluster, JOB, make_run_key(unique)).uid == reference.uid  # the request is the same without the owner
    cluster._http.request("DELETE", f"{CONFIGMAPS}/{unique}", doing="delete a config map")
    wait_until(lambda: not list_trainjobs(cluster, unique))


def test_a_deletion_without_a_uid_deletes_any_job_of_the_name(cluster, unique):
    reference = submit(cluster, JOB, make_run_key(unique))
    assert cluster.delete_trainjob(reference.name, "default", None)
    assert not cluster.delete_trainjob(reference.name, "default", None)
    assert not list_trainjobs(cluster, unique)

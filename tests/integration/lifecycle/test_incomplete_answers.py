"""Responses of 200 whose body is empty, lacks fields or is another object: a step goes on, or raises a typed error."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import InvalidResponse, WaitTimeout
from trainjob.lifecycle import JobReference, Limits, RunKey, apply_kill_action, submit, wait
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import labels
from trainjob.status import Phase

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]))
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PODS = "/api/v1/namespaces/default/pods"
METADATA = {
    "name": "n",
    "namespace": "default",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500}


def without_field(name):
    """Return an object whose metadata lacks a field, alone and as the only item of a list."""
    metadata = {**METADATA}
    del metadata[name]
    return {"metadata": metadata, "items": [{"metadata": metadata}]}


BODIES = {
    "empty": b"",
    "{}": b"{}",
    "[]": b"[]",
    "metadata null": b'{"metadata": null}',
    "no uid": json.dumps(without_field("uid")).encode(),
    "no name": json.dumps(without_field("name")).encode(),
    "a Status": json.dumps(STATUS).encode(),
}


def watch_event(body):
    """Return the body as the object of a watch event; an empty body stays empty."""
    return b'{"type": "MODIFIED", "object": %s}\n' % body if body else b""


@pytest.fixture
def key(unique):
    return RunKey("test", "workflow", unique, "run-1")


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop.server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxied_cluster(laptop, proxy):
    """The cluster through the proxy."""
    with open_cluster(laptop, proxy, patience=30.0) as opened:
        yield opened


@contextlib.contextmanager
def open_cluster(laptop, proxy, patience):
    kubeconfig = json.loads(laptop.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"] = {"server": proxy.url}
    connection = Connection(kubeconfig_json=json.dumps(kubeconfig))
    with contextlib.closing(Cluster(connection, retry_seconds=patience)) as opened:
        opened.trainjob_spec_fields()  # once for each connection, and no part of these tests
        yield opened


def list_trainjobs(cluster, key):
    return cluster.list_trainjobs("default", f"{labels.RUN_KEY}={key.digest}")


ALWAYS_INCOMPLETE = [b'{"metadata": null}'] * 1000


@pytest.mark.parametrize(
    ("requests", "doing"),
    [
        ([f"GET {JOBS}"], "list trainjobs in namespace default"),
        ([f"POST {JOBS}", f"PATCH {JOBS}/NAME"], "patch trainjob NAME in namespace default"),
        ([f"GET {JOBSETS}/NAME"], "get jobsets in namespace default"),
        ([f"DELETE {JOBS}/NAME"], "delete trainjobs in namespace default"),
    ],
)
def test_what_never_gets_better_is_a_typed_error(laptop, cluster, proxy, key, requests, doing):
    name = _first_name(key)
    proxy.replacements = {request.replace("NAME", name): [*ALWAYS_INCOMPLETE] for request in requests}
    with open_cluster(laptop, proxy, patience=0.3) as proxied, pytest.raises(InvalidResponse) as raised:
        wait(proxied, submit(proxied, JOB, key, timeout=0.3), limits=Limits(total=timedelta()))
    assert raised.value.retryable
    assert f"{proxy.url} returned 200 for the request to {doing.replace('NAME', name)}, but the body is invalid" in str(
        raised.value
    )
    for job in list_trainjobs(cluster, key):  # a creation without a usable answer: the next try finds it
        reference = submit(cluster, JOB, key)
        assert (reference.uid, reference.adopted) == (job["metadata"]["uid"], True)
        delete_trainjob(cluster, reference)


def delete_trainjob(cluster, reference):
    cluster.delete_trainjob(reference.name, "default", reference.uid)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("request_", [f"GET {JOBS}", f"POST {JOBS}", f"GET {JOBSETS}/NAME", f"GET {PODS}"])
def test_submitting_creates_one_job(cluster, proxied_cluster, proxy, key, request_, body):
    names = []

    def before_create(name, _):
        names.append(name)

    replaced = request_.replace("NAME", _first_name(key))
    proxy.replacements[replaced] = [BODIES[body]]
    reference = submit(proxied_cluster, JOB, key, before_create=before_create)
    assert not proxy.replacements[replaced]
    [job] = list_trainjobs(cluster, key)
    assert (job["metadata"]["uid"], set(names)) == (reference.uid, {reference.name})
    assert reference.adopted == request_.startswith("POST")  # it exists, although its creation got no usable answer
    delete_trainjob(cluster, reference)


def _first_name(key):
    """Return the name that the key's first TrainJob gets."""
    return prepare_job(
        JOB, key, "default", default_namespace="", name_prefix="", variables=None, renewal=""
    ).build_metadata(1)["name"]


def test_a_creation_at_the_end_of_the_patience_is_looked_up(cluster, proxied_cluster, proxy, key):
    proxy.replacements[f"POST {JOBS}"] = [b"{}"]
    reference = submit(proxied_cluster, JOB, key, timeout=0.0)
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, key)] == [reference.uid]
    delete_trainjob(cluster, reference)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("request_", [f"PATCH {JOBS}/NAME", f"GET {PODS}"])
def test_adopting_takes_the_suspended_job(cluster, proxied_cluster, proxy, key, request_, body):
    made = submit(cluster, JOB, key)
    apply_kill_action(cluster, made, "suspend")
    replaced = request_.replace("NAME", made.name)
    proxy.replacements[replaced] = [BODIES[body]]
    reference = submit(proxied_cluster, JOB, key)
    assert not proxy.replacements[replaced]
    assert (reference.uid, reference.adopted) == (made.uid, True)
    [job] = list_trainjobs(cluster, key)
    assert not job["spec"].get("suspend")
    delete_trainjob(cluster, reference)


@pytest.mark.parametrize("body", BODIES)
def test_a_name_in_use_is_read_again(cluster, proxied_cluster, proxy, key, body):
    """After a 409 the job of that name is read: it is another process' for the same key, and adopted."""
    made = submit(cluster, JOB, key)
    proxy.answers[f"GET {JOBS}"] = (200, b'{"metadata": {"resourceVersion": "1"}, "items": []}')
    proxy.replacements[f"GET {JOBS}/{made.name}"] = [BODIES[body]]

    def before_create(*_):
        proxy.answers.clear()

    assert submit(proxied_cluster, JOB, key, before_create=before_create).uid == made.uid
    assert not proxy.replacements[f"GET {JOBS}/{made.name}"]
    delete_trainjob(cluster, made)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("verb", ["GET", "WATCH"])
@pytest.mark.parametrize("path", [JOBS, PODS], ids=["trainjobs", "pods"])
def test_waiting_goes_on(cluster, proxied_cluster, proxy, key, verb, path, body):
    """Until the job is deleted, which the waiter sees all the same."""
    reference = submit(cluster, JOB, key)
    replaced = proxy.replacements[f"{verb} {path}"] = [watch_event(BODIES[body]) if verb == "WATCH" else BODIES[body]]
    before = proxy.requests[f"{verb} {path}"]

    def delete_once_it_is_replaced():
        wait_until(lambda: proxy.requests[f"{verb} {path}"] > before + 1)
        delete_trainjob(cluster, reference)

    with ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(delete_once_it_is_replaced)
        assert wait(proxied_cluster, reference).phase is Phase.DELETED
        deleting.result()
    assert not replaced


@pytest.mark.parametrize("body", BODIES)
def test_a_deletion_without_a_usable_answer_is_sent_again(cluster, proxied_cluster, proxy, key, body):
    reference = submit(cluster, JOB, key)
    proxy.replacements[f"DELETE {JOBS}/{reference.name}"] = [BODIES[body]]
    with pytest.raises(WaitTimeout):
        wait(proxied_cluster, reference, limits=Limits(total=timedelta()))
    assert not proxy.replacements[f"DELETE {JOBS}/{reference.name}"]
    assert not list_trainjobs(cluster, key)


@pytest.mark.parametrize("body", BODIES)
def test_a_job_that_is_gone_is_read_again(proxied_cluster, proxy, unique, body):
    """A reading that says nothing is neither a TrainJob nor its end."""
    reference = JobReference(unique, "default", str(uuid.uuid4()))
    proxy.replacements[f"GET {JOBS}/{unique}"] = [BODIES[body]]
    assert wait(proxied_cluster, reference).phase is Phase.DELETED
    assert not proxy.replacements[f"GET {JOBS}/{unique}"]

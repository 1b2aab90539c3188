"""Tests of responses with status 200 whose body is empty, lacks fields or is another object.

The step continues, or raises a typed error.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import InvalidResponse, WaitTimeout
from trainjob.lifecycle import JobReference, Limits, RunKey, cancel, submit, wait
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
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def proxied_cluster(proxy):
    """Yield a client of the cluster that uses the proxy."""
    with open_cluster(proxy, retry_seconds=30.0) as opened:
        yield opened


@contextlib.contextmanager
def open_cluster(proxy, retry_seconds):
    connection = Connection(kubeconfig_text=proxy.kubeconfig_text)
    with contextlib.closing(Cluster(connection, retry_seconds=retry_seconds)) as opened:
        opened.trainjob_spec_fields()  # requested once for each connection; these tests do not cover it
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
def test_responses_that_stay_incomplete_raise_a_typed_error(laptop, cluster, proxy, key, requests, doing):
    name = _first_name(key)
    proxy.replacements = {request.replace("NAME", name): [*ALWAYS_INCOMPLETE] for request in requests}
    with open_cluster(proxy, retry_seconds=0.3) as proxied, pytest.raises(InvalidResponse) as raised:
        wait(proxied, submit(proxied, JOB, key, timeout=0.3), limits=Limits(total=timedelta()))
    assert raised.value.retryable
    assert f"{proxy.url} returned 200 for the request to {doing.replace('NAME', name)}, but the body is invalid" in str(
        raised.value
    )
    for job in list_trainjobs(cluster, key):  # the next try finds a TrainJob whose creation got an incomplete response
        reference = submit(cluster, JOB, key)
        assert (reference.uid, reference.adopted) == (job["metadata"]["uid"], True)
        delete_trainjob(cluster, reference)


def delete_trainjob(cluster, reference):
    cluster.delete_trainjob(reference.name, "default", reference.uid)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("request_", [f"GET {JOBS}", f"POST {JOBS}", f"GET {JOBSETS}/NAME", f"GET {PODS}"])
def test_a_submission_creates_one_job(cluster, proxied_cluster, proxy, key, request_, body):
    names = []

    def before_create(name, _):
        names.append(name)

    replaced = request_.replace("NAME", _first_name(key))
    proxy.replacements[replaced] = [BODIES[body]]
    reference = submit(proxied_cluster, JOB, key, before_create=before_create)
    assert not proxy.replacements[replaced]
    [job] = list_trainjobs(cluster, key)
    assert (job["metadata"]["uid"], set(names)) == (reference.uid, {reference.name})
    assert reference.adopted == request_.startswith(
        "POST"
    )  # it exists, although its creation got an incomplete response
    delete_trainjob(cluster, reference)


def _first_name(key):
    """Return the name that the key's first TrainJob gets."""
    return prepare_job(
        JOB, key, "default", default_namespace="", name_prefix="", variables=None, renewal=""
    ).build_metadata(1)["name"]


def test_a_creation_with_an_incomplete_response_is_found_after_the_timeout(cluster, proxied_cluster, proxy, key):
    proxy.replacements[f"POST {JOBS}"] = [b"{}"]
    reference = submit(proxied_cluster, JOB, key, timeout=0.0)
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, key)] == [reference.uid]
    delete_trainjob(cluster, reference)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("request_", [f"PATCH {JOBS}/NAME", f"GET {PODS}"])
def test_an_adoption_resumes_the_suspended_job(cluster, proxied_cluster, proxy, key, request_, body):
    created = submit(cluster, JOB, key)
    cancel(cluster, created, "suspend")
    replaced = request_.replace("NAME", created.name)
    proxy.replacements[replaced] = [BODIES[body]]
    reference = submit(proxied_cluster, JOB, key)
    assert not proxy.replacements[replaced]
    assert (reference.uid, reference.adopted) == (created.uid, True)
    [job] = list_trainjobs(cluster, key)
    assert not job["spec"].get("suspend")
    delete_trainjob(cluster, reference)


@pytest.mark.parametrize("body", BODIES)
def test_a_name_in_use_is_read_again(cluster, proxied_cluster, proxy, key, body):
    """After a 409, the TrainJob of that name is read; another process has created it for the same key."""
    created = submit(cluster, JOB, key)
    proxy.responses[f"GET {JOBS}"] = (200, b'{"metadata": {"resourceVersion": "1"}, "items": []}')
    proxy.replacements[f"GET {JOBS}/{created.name}"] = [BODIES[body]]

    def before_create(*_):
        proxy.responses.clear()

    assert submit(proxied_cluster, JOB, key, before_create=before_create).uid == created.uid
    assert not proxy.replacements[f"GET {JOBS}/{created.name}"]
    delete_trainjob(cluster, created)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("verb", ["GET", "WATCH"])
@pytest.mark.parametrize("path", [JOBS, PODS], ids=["trainjobs", "pods"])
def test_a_wait_continues_after_an_incomplete_response(cluster, proxied_cluster, proxy, key, verb, path, body):
    """The waiter still sees that the job is deleted."""
    reference = submit(proxied_cluster, JOB, key)
    replaced = proxy.replacements[f"{verb} {path}"] = [watch_event(BODIES[body]) if verb == "WATCH" else BODIES[body]]
    before = proxy.request_counts[f"{verb} {path}"]

    def delete_after_the_replacement():
        wait_until(lambda: proxy.request_counts[f"{verb} {path}"] > before + 1)
        delete_trainjob(cluster, reference)

    with ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(delete_after_the_replacement)
        assert wait(proxied_cluster, reference).phase is Phase.DELETED
        deleting.result()
    assert not replaced


@pytest.mark.parametrize("body", BODIES)
def test_a_deletion_with_an_incomplete_response_is_repeated(cluster, proxied_cluster, proxy, key, body):
    reference = submit(cluster, JOB, key)
    proxy.replacements[f"DELETE {JOBS}/{reference.name}"] = [BODIES[body]]
    with pytest.raises(WaitTimeout):
        wait(proxied_cluster, reference, limits=Limits(total=timedelta()))
    assert not proxy.replacements[f"DELETE {JOBS}/{reference.name}"]
    assert not list_trainjobs(cluster, key)


@pytest.mark.parametrize("body", BODIES)
def test_a_job_with_an_incomplete_response_is_read_again(proxied_cluster, proxy, unique, body):
    """An incomplete response is neither a TrainJob nor its deletion."""
    reference = JobReference(unique, "default", str(uuid.uuid4()))
    proxy.replacements[f"GET {JOBS}/{unique}"] = [BODIES[body]]
    assert wait(proxied_cluster, reference).phase is Phase.DELETED
    assert not proxy.replacements[f"GET {JOBS}/{unique}"]

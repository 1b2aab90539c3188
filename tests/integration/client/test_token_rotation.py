"""Tests of credentials that are replaced while a client uses them.

The API server refuses the old credentials for a while before the client finds the new ones. It may also refuse single
requests while Roles are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from tests.support.replaced_credentials import Credentials
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster
from trainjob.client.whole_log import read_log
from trainjob.errors import PermissionDenied, Unauthorized
from trainjob.lifecycle import RunKey, cancel, submit, wait, wait_async
from trainjob.status import Phase

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "600"]))
SHORT_JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["echo", "hello"]))
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
FORBIDDEN = b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "RBAC: the Role is being replaced"}'


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        server.accepted_tokens = {"old"}
        yield server


@pytest.fixture
def credentials(request, proxy, tmp_path):
    return Credentials(getattr(request, "param", "token file"), tmp_path, proxy.url)


KINDS = pytest.mark.parametrize("credentials", ["token file", "kubeconfig", "plugin"], indirect=True)


@contextlib.contextmanager
def open_cluster(credentials, **options):
    with contextlib.closing(Cluster(credentials.connection(), **options)) as opened:
        yield opened


@contextlib.contextmanager
def rotating(proxy, credentials, refusals=4):
    """Make the server refuse the old token; write the new one after some refused requests."""
    before = proxy.refusals
    proxy.accepted_tokens = {"new"}

    def replace():
        wait_until(lambda: proxy.refusals >= before + refusals)
        credentials.replace("new")

    with ThreadPoolExecutor(1) as threads:
        replacement = threads.submit(replace)
        yield
        replacement.result()


@pytest.fixture
def key(unique):
    return RunKey("test", "workflow", unique, "run-1")


@pytest.fixture
def job(cluster, key):
    """Yield a running TrainJob."""
    reference = submit(cluster, JOB, key)
    yield reference
    cluster.delete_trainjob(reference.name, "default", reference.uid)


REQUESTS = {
    "get": lambda cluster, job, key: cluster.get_trainjob(job.name, "default")["metadata"]["uid"] == job.uid,
    "list": lambda cluster, job, key: bool(cluster.list_trainjobs("default")),
    "patch": lambda cluster, job, key: cluster.patch_trainjob(job.name, "default", job.uid, labels={"a": "b"}),
    "delete": lambda cluster, job, key: cluster.delete_trainjob(job.name, "default", job.uid),
    "suspend": lambda cluster, job, key: cancel(cluster, job, "suspend").text,
    "adopt": lambda cluster, job, key: submit(cluster, JOB, key).uid == job.uid,
    "list pods": lambda cluster, job, key: isinstance(cluster.list_pods(job.name, "default"), list),
}


@KINDS
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_continues_after_a_rotation(proxy, credentials, job, key, request_):
    with open_cluster(credentials) as client:
        client.open_connection()
        with rotating(proxy, credentials):
            assert REQUESTS[request_](client, job, key) is not False


@KINDS
def test_a_submission_creates_one_job_during_a_rotation(cluster, proxy, credentials, key):
    with open_cluster(credentials) as client, contextlib.ExitStack() as stack:
        client.open_connection()

        def before_create(*_):  # the rotation begins between the list and the creation
            if proxy.accepted_tokens == {"old"}:
                stack.enter_context(rotating(proxy, credentials))

        reference = submit(client, JOB, key, before_create=before_create)
        [created] = cluster.list_trainjobs("default", f"trainjob.dev/run-key={key.digest}")
        assert (created["metadata"]["uid"], reference.adopted) == (reference.uid, False)
        cluster.delete_trainjob(reference.name, "default", reference.uid)


def test_a_log_is_read_during_a_rotation(cluster, proxy, credentials, key):
    reference = submit(cluster, SHORT_JOB, key)
    assert wait(cluster, reference).phase is Phase.COMPLETE
    [pod] = cluster.list_pods(reference.name, "default")
    lines = []
    with open_cluster(credentials) as client:
        client.open_connection()
        with rotating(proxy, credentials):
            read_log(client, pod, "node", lines.append)
    assert [line.text for line in lines] == ["hello"]
    cluster.delete_trainjob(reference.name, "default", reference.uid)


@pytest.mark.slow
@KINDS
def test_many_waiters_continue_after_a_rotation_and_load_credentials_once_a_second(cluster, proxy, credentials, job):
    """The first lists of the informers, the requests of 30 threads and 300 waiters are refused at the same time."""

    async def wait_many(client):
        waiters = [asyncio.ensure_future(wait_async(client, job)) for _ in range(300)]
        await asyncio.to_thread(read_many, client)
        cluster.delete_trainjob(job.name, "default", job.uid)
        return await asyncio.gather(*waiters)

    def read_many(client):
        with ThreadPoolExecutor(30) as threads:
            found = list(threads.map(lambda _: client.get_trainjob(job.name, "default"), range(60)))
        assert {each["metadata"]["uid"] for each in found} == {job.uid}

    with open_cluster(credentials) as client:
        client.open_connection()
        opened_at = time.monotonic()
        with rotating(proxy, credentials, refusals=100):
            outcomes = asyncio.run(wait_many(client))
        seconds = time.monotonic() - opened_at
    assert {outcome.phase for outcome in outcomes} == {Phase.DELETED}
    runs = len(credentials.plugin_runs.read_text().splitlines()) if credentials.plugin_runs.exists() else 0
    assert runs <= 2 + seconds


@KINDS
def test_credentials_that_never_worked_fail_after_two_requests(proxy, credentials):
    proxy.accepted_tokens = {"other"}
    with open_cluster(credentials) as client, pytest.raises(Unauthorized) as raised:
        client.list_trainjobs("default")
    assert (proxy.refusals, raised.value.worked_before, raised.value.retryable) == (2, False, True)


def test_a_wait_on_a_trainjob_of_another_process_survives_a_refusal_of_its_first_requests(proxy, credentials, job):
    """The process that submitted it was accepted, for example the worker of a deferred task."""
    proxy.accepted_tokens = {"other"}
    with open_cluster(credentials) as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, client, replace(job, cluster=client.identity))
        wait_until(lambda: proxy.refusals > 3)
        proxy.accepted_tokens = {"old"}
        cancel(client, job)
        assert waiting.result().phase is Phase.DELETED


def test_a_wait_on_a_trainjob_of_another_connection_fails_at_once(proxy, credentials, job):
    proxy.accepted_tokens = {"other"}
    with open_cluster(credentials) as client, pytest.raises(Unauthorized):
        wait(client, job)
    assert proxy.refusals <= 4  # lists of TrainJobs and pods


def test_a_longer_refusal_raises_an_error_that_an_engine_retries(proxy, credentials, job):
    with open_cluster(credentials, retry_seconds=1.0) as client:
        client.open_connection()
        proxy.accepted_tokens = {"other"}
        with pytest.raises(Unauthorized) as raised:
            client.get_trainjob(job.name, "default")
    assert (raised.value.worked_before, raised.value.permanent) == (True, False)
    assert 2 < proxy.refusals < 20  # with pauses


def test_a_client_without_retries_does_not_wait(proxy, credentials, job):
    """The KFP launcher deletes its TrainJob after a SIGTERM with such a client."""
    with open_cluster(credentials, retry_seconds=0.0) as client:
        client.open_connection()
        proxy.accepted_tokens = {"other"}
        with pytest.raises(Unauthorized):
            client.delete_trainjob(job.name, "default", job.uid)
    assert proxy.refusals == 2


def test_a_forbidden_request_that_worked_before_is_retried(proxy, credentials, job):
    path = f"{JOBS}/{job.name}"
    with open_cluster(credentials) as client:
        client.get_trainjob(job.name, "default")
        proxy.responses[f"GET {path}"] = (403, FORBIDDEN)
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(client.get_trainjob, job.name, "default")
            wait_until(lambda: proxy.request_counts[f"GET {path}"] >= 3)
            proxy.responses.clear()
            assert reading.result()["metadata"]["uid"] == job.uid


def test_a_request_that_was_always_forbidden_fails_at_once(proxy, credentials, job):
    path = f"{JOBS}/{job.name}"
    proxy.responses[f"GET {path}"] = (403, FORBIDDEN)
    with open_cluster(credentials) as client:
        client.list_trainjobs("default")  # another verb of the same resource
        with pytest.raises(PermissionDenied) as raised:
            client.get_trainjob(job.name, "default")
    assert (raised.value.permanent, proxy.request_counts[f"GET {path}"]) == (True, 1)


def test_a_token_file_that_is_missing_for_a_moment_is_not_an_error(proxy, credentials, job, tmp_path):
    with open_cluster(credentials) as client:
        client.open_connection()
        (tmp_path / "token").unlink()
        assert client.get_trainjob(job.name, "default")["metadata"]["uid"] == job.uid


@pytest.mark.parametrize("credentials", ["kubeconfig"], indirect=True)
def test_a_kubeconfig_that_is_missing_for_a_moment_is_not_an_error(proxy, credentials, job, tmp_path):
    with open_cluster(credentials) as client:
        client.open_connection()
        (tmp_path / "kubeconfig").unlink()
        with rotating(proxy, credentials):
            assert client.get_trainjob(job.name, "default")["metadata"]["uid"] == job.uid

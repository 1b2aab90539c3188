"""Property tests of every call that sends requests: each returns a value or raises a typed error.

The responses are objects of every kind with damaged, missing and foreign parts. They come from a transport below the
kubernetes client, so that 100,000 calls take minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import queue
from collections import Counter
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.chaos.fuzz.fake_transport import CLAIM, RUNTIME, FakeTransport, client_with
from tests.chaos.fuzz.objects import POD, RUN_KEY, TRAINJOB
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection, list_warning_lines
from trainjob.client.backoff import Backoff, InformerTimings
from trainjob.client.connection import open_client
from trainjob.client.diagnostics import list_warning_events, read_log_tail
from trainjob.client.resources import EVENTS
from trainjob.client.whole_log import read_log
from trainjob.errors import TrainJobError
from trainjob.inspection.check import check_namespace
from trainjob.inspection.description import describe
from trainjob.inspection.live_status import watch
from trainjob.inspection.model_location import find_model
from trainjob.inspection.summary import summarize
from trainjob.lifecycle import (
    JobReference,
    JobSelector,
    KillAction,
    Limits,
    RunKey,
    cancel,
    check_external,
    set_suspended,
    submit,
    wait_async,
    wait_external,
)
from trainjob.retention.sweeping import sweep
from trainjob.status import derive_verdict

NAME, UID = TRAINJOB["metadata"]["name"], TRAINJOB["metadata"]["uid"]
KEY, REFERENCE = RunKey(**json.loads(RUN_KEY)), JobReference(NAME, "team", UID)
SELECTOR = JobSelector(namespace="team", run_key=KEY)
JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
WAIT = timedelta(milliseconds=50)
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def follow(open_informer):
    """Return a call that waits for the first object or error of an informer."""

    def call(cluster):
        found = queue.SimpleQueue()
        with open_informer(cluster).add_event_handler(None, found.put, lambda: found.put(None)):
            event = found.get(timeout=60.0)
        if event is not None and event.error:
            raise event.error
        return event and (derive_verdict(event.object).phase, summarize(event.object))

    return call


def with_trainjob(call):
    """Return a call that gets a TrainJob and passes it on."""

    def run(cluster):
        job = cluster.get_trainjob(NAME, "team")
        return job and call(cluster, job)

    return run


def list_jobs(cluster):
    return [(derive_verdict(job).phase, summarize(job).to_dict()) for job in cluster.list_trainjobs("team")]


CALLS = {
    "get TrainJob": lambda cluster: cluster.get_trainjob(NAME, "team"),
    "list TrainJobs": list_jobs,
    "create TrainJob": lambda cluster: cluster.create_trainjob({"metadata": {"namespace": "team"}}),
    "patch TrainJob": lambda cluster: cluster.patch_trainjob(NAME, "team", UID, labels={"a": "b"}),
    "delete TrainJob": lambda cluster: cluster.delete_trainjob(NAME, "team", UID),
    "get JobSet and pods": lambda cluster: cluster.has_dependents(NAME, "team"),
    "list pods": lambda cluster: cluster.list_pods(NAME, "team"),
    "get pod": lambda cluster: cluster.get_pod("p", "team"),
    "list events": lambda cluster: cluster.list_events("team", "type=Warning"),
    "list objects": lambda cluster: cluster.list_objects(EVENTS, None),
    "list namespaces": lambda cluster: cluster.list_namespaces(),
    "get claim": lambda cluster: cluster.get_claim("c", "team"),
    "create claim": lambda cluster: cluster.create_claim(CLAIM),
    "delete claim": lambda cluster: cluster.delete_claim("c", "team", UID),
    "get version": lambda cluster: cluster.open_connection(),
    "get OpenAPI document": lambda cluster: cluster.trainjob_spec_fields(fresh=True),
    "get runtime": lambda cluster: cluster.runtimes.find("r", "ClusterTrainingRuntime", "team"),
    "list runtimes": lambda cluster: cluster.runtimes.list_all("TrainingRuntime", "team"),
    "create runtime": lambda cluster: cluster.runtimes.create({**RUNTIME, "kind": "TrainingRuntime"}),
    "read log": lambda cluster: read_log(cluster, POD, "node", lambda line: None),
    "read log tail": lambda cluster: read_log_tail(cluster, "team", POD, "node"),
    "list warning lines": lambda cluster: list_warning_lines(cluster, "team", NAME, [POD]),
    "list warning events": lambda cluster: list_warning_events(cluster, "team", NAME, [POD]),
    "cached warnings": lambda cluster: cluster.diagnostics.get_warnings("team"),
    "cached Workloads": lambda cluster: cluster.diagnostics.get_workload(UID, "team"),
    "submit": lambda cluster: submit(cluster, JOB, KEY, namespace="team", timeout=0.0),
    "cancel": lambda cluster: cancel(cluster, REFERENCE),
    "suspend": lambda cluster: cancel(cluster, REFERENCE, "suspend").text,
    "resume": lambda cluster: set_suspended(cluster, NAME, "team", suspended=False),
    "sweep": lambda cluster: sweep(cluster, namespace="team", finished_for=timedelta(0), has_ended=lambda _: True),
    "describe": with_trainjob(lambda cluster, job: describe(cluster, job).to_dict()),
    "find model": with_trainjob(find_model),
    "trainjob check": lambda cluster: [
        row.to_dict() for row in check_namespace(cluster.inspect_platform("team", "torch-distributed"), NOW)
    ],
}


def wait_for_reference(cluster):
    limits = Limits(total=WAIT, on_timeout=KillAction.KEEP, on_failure=KillAction.KEEP)
    return asyncio.run(wait_async(cluster, REFERENCE, limits=limits)).to_dict()


def watch_status(cluster):
    """Return the first status of a TrainJob."""
    with contextlib.closing(watch(cluster, "team", [NAME])) as statuses:
        return [status.to_dict() for status in itertools.islice(statuses, 1)]


# They use threads and wait for them.
WATCHES = {
    "wait": wait_for_reference,
    "wait external": lambda cluster: asyncio.run(wait_external(cluster, SELECTOR, timeout=WAIT)),
    "watch status": watch_status,
    "watch TrainJobs": follow(lambda cluster: cluster.trainjob_informer("team")),
    "check external": lambda cluster: check_external(cluster, SELECTOR),
    "watch pods": follow(lambda cluster: cluster.pod_informer("team")),
}
UNEXPECTED = ("an event handler failed", "TypeError", "KeyError", "AttributeError", "IndexError", "RuntimeError")
PROFILE = settings.default or settings()
SHARE = PROFILE.max_examples / 100  # hypothesis has 100 unless a profile sets another number
EXAMPLES, WATCH_EXAMPLES = 2800, 200


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Replace the pauses between retries, so that a call takes milliseconds."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    fake_time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr("trainjob.lifecycle.submission.time", fake_time)
    monkeypatch.setattr("trainjob.client.whole_log._RETRY_SECONDS", 0.0)
    monkeypatch.setattr("trainjob.lifecycle.end_checks.ACTIVE_PODS_SECONDS", 0.01)
    monkeypatch.setattr("trainjob.lifecycle.evidence._LOG_SECONDS", 0.01)
    # Hypothesis refuses the use of `random` on other threads while it draws a value.
    monkeypatch.setattr(Backoff.__init__, "__defaults__", (0.2, 30.0, lambda: 0.5, 0))
    timings = InformerTimings(stop_delay=0.0, poll_interval=0.001, backoff=lambda: Backoff(0.001, 0.001))
    monkeypatch.setattr("trainjob.client.informer.InformerTimings", lambda: timings)


@pytest.fixture(scope="module")
def kubernetes_client():
    client, _ = open_client(Connection(server="http://127.0.0.1:1"))
    return client


def run_call(call, seed, kubernetes_client, monkeypatch):
    """Send the requests of a call; return `values`, `typed_errors` or `unhandled`."""
    # The threads of a watch send a request each millisecond until the call ends, which takes seconds on a busy machine.
    transport = FakeTransport(seed, limit=200_000 if call in WATCHES.values() else 2000)
    monkeypatch.setattr(
        "trainjob.client.http_client.open_client", lambda _: (client_with(transport, kubernetes_client), "team")
    )
    cluster = Cluster(Connection(server="http://127.0.0.1:1"), retry_seconds=0.0)
    try:
        call(cluster)
    except TrainJobError as error:
        assert not any(word in str(error) for word in UNEXPECTED), f"{error}\n{transport.shown[-8:]}"
        return "typed_errors"
    except Exception as error:
        error.add_note(f"the last responses: {transport.shown[-8:]}")
        raise
    finally:
        cluster.close()
    return "values"


def check_call(name, call, examples, kubernetes_client, monkeypatch, evidence):
    results = Counter(values=0, typed_errors=0)

    @settings(
        max_examples=max(1, round(examples * SHARE)),
        derandomize=PROFILE.derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**64))
    def check(seed):
        results[run_call(call, seed, kubernetes_client, monkeypatch)] += 1

    try:
        check()
    except BaseException:
        results["unhandled"] += 1
        raise
    finally:
        evidence("answers", call=name, executions=results.total(), unhandled=results.pop("unhandled", 0), **results)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_returns_a_value_or_a_typed_error(name, kubernetes_client, monkeypatch, evidence):
    check_call(name, CALLS[name], EXAMPLES, kubernetes_client, monkeypatch, evidence)


@pytest.mark.parametrize("name", WATCHES)
def test_a_watch_returns_a_value_or_a_typed_error(name, kubernetes_client, monkeypatch, evidence):
    check_call(name, WATCHES[name], WATCH_EXAMPLES, kubernetes_client, monkeypatch, evidence)


@pytest.mark.parametrize(("name", "seed"), [("watch status", 11711)])
def test_a_seed_that_found_a_fault(name, seed, kubernetes_client, monkeypatch):
    assert run_call(WATCHES[name], seed, kubernetes_client, monkeypatch) == "values"

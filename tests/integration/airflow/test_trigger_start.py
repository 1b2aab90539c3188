"""Tests of the wait of a worker for the start of its task's trigger, on the laptop cluster."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk.execution_time import task_runner

from tests.support.polling import wait_until
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import labels
from trainjob.spec import CustomTrainerContainer, TrainJob
from trainjob_airflow import delivery, trigger_start
from trainjob_airflow.plugins.page import TrainJobPage
from trainjob_airflow.trigger_start import Deferral, announce_start, before_stopping, create_deferral_id

SUPERVISOR = SimpleNamespace(socket=object())


class StateRequests:
    """Answers to the requests for the task's state, and the number of requests."""

    def __init__(self):
        self.state, self.count, self.received = "", 0, threading.Event()

    def __call__(self, _):
        self.count += 1
        self.received.set()
        return self.state


@pytest.fixture
def requests(monkeypatch):
    made = StateRequests()
    monkeypatch.setattr(trigger_start, "get_user_decision", made)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SUPERVISOR, raising=False)
    return made


@pytest.fixture
def deferral(cluster):
    """Yield a deferral for a TrainJob that runs until it is deleted."""
    trainer = CustomTrainerContainer(image="busybox", command=("sh", "-c", "while true; do sleep 1; done"))
    key = RunKey("airflow", "llm", "train", uuid.uuid4().hex)
    reference = submit(cluster, TrainJob(trainer=trainer), key)
    yield Deferral(create_deferral_id(), cluster, reference, key.digest, "delete", None)
    cancel(cluster, reference)


def get_job(deferral):
    return deferral.cluster.get_trainjob(deferral.reference.name, deferral.reference.namespace)


def start_waiting(deferral):
    trigger_start.record_deferral(deferral)
    waiting = threading.Thread(target=before_stopping, kwargs={"component": None}, daemon=True)
    waiting.start()
    return waiting


def test_the_plugin_registers_the_listeners():
    assert TrainJobPage.listeners == [trigger_start, delivery]


def test_the_worker_waits_until_the_trigger_has_started(requests, deferral):
    waiting = start_waiting(deferral)
    assert requests.received.wait(30)
    asyncio.run(announce_start(deferral.cluster, deferral.reference, deferral.id))
    waiting.join(300)
    assert not waiting.is_alive()
    assert get_job(deferral) is not None


def test_the_start_of_the_trigger_of_an_earlier_deferral_does_not_count(requests, deferral):
    asyncio.run(announce_start(deferral.cluster, deferral.reference, create_deferral_id()))
    waiting = start_waiting(deferral)
    assert requests.received.wait(30)
    assert waiting.is_alive()
    asyncio.run(announce_start(deferral.cluster, deferral.reference, deferral.id))
    waiting.join(300)
    assert not waiting.is_alive()


def test_a_started_trigger_needs_no_request_to_airflow(requests, deferral):
    asyncio.run(announce_start(deferral.cluster, deferral.reference, deferral.id))
    start_waiting(deferral).join(300)
    assert requests.count == 0


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "removed"])
def test_the_worker_deletes_the_job_of_a_task_that_a_user_ended(requests, deferral, state):
    requests.state = state
    waiting = start_waiting(deferral)
    wait_until(lambda: get_job(deferral) is None)
    waiting.join(300)
    assert not waiting.is_alive()


def test_the_worker_ends_when_the_job_is_deleted(requests, deferral):
    waiting = start_waiting(deferral)
    assert requests.received.wait(30)
    cancel(deferral.cluster, deferral.reference)
    waiting.join(300)
    assert not waiting.is_alive()


def test_the_worker_ends_if_no_trigger_starts(requests, deferral, monkeypatch, caplog):
    monkeypatch.setattr(trigger_start, "_MAX_SECONDS", 0.1)
    start_waiting(deferral).join(300)
    assert requests.count == 1
    assert "No triggerer has started the trigger" in caplog.text
    assert get_job(deferral) is not None


def test_a_process_that_has_deferred_nothing_ends_at_once(requests):
    before_stopping(component=None)
    assert requests.count == 0


def test_the_same_process_runs_the_trigger_under_dag_test(requests, deferral, monkeypatch):
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", object())
    trigger_start.record_deferral(deferral)
    before_stopping(component=None)
    assert requests.count == 0


@pytest.mark.parametrize(
    "deferral_id", ["", (datetime.now(timezone.utc) - timedelta(minutes=2)).isoformat()], ids=["none", "old"]
)
def test_a_trigger_without_a_waiting_worker_writes_nothing(deferral, deferral_id):
    asyncio.run(announce_start(deferral.cluster, deferral.reference, deferral_id))
    assert labels.get_annotation(get_job(deferral), labels.DEFERRAL) == ""

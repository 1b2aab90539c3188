"""Tests of a TrainJob that prints faster than Airflow's log accepts: the event loop writes none of the lines."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from types import SimpleNamespace

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit
from trainjob.client import LogWriter
from trainjob.client.log_queue import QueueLimits
from trainjob.lifecycle import Limits
from trainjob_airflow import FineTuneOperator, TrainJobOperator, TrainJobTrigger, task_log, task_progress

pytestmark = pytest.mark.usefixtures("airflow_environment")

LINES = 50_000
MAX_QUEUED_LINES = 50  # lines in the queue
RESULT = '{"score": 7}'


class BlockingLog:
    """Log that needs 1.6 ms for each line, as Airflow's full log socket does.

    It records the threads that write to it.
    """

    def __init__(self):
        self.lines, self.threads = [], set()

    def info(self, text):
        time.sleep(0.0016)
        self.threads.add(threading.get_ident())
        self.lines.append(text)


@pytest.fixture
def small_log_queues(monkeypatch):
    """Give the triggerer's log writer short queues, and return all queues that it opens."""
    writer, queues = LogWriter(queue_limits=QueueLimits(lines=MAX_QUEUED_LINES, max_wait=0.5, kept_lines=20)), []
    original_open = writer.open

    def recording_open(*arguments):
        channel = original_open(*arguments)
        queues.append(channel._queue)
        return channel

    monkeypatch.setattr(task_progress, "_CATCH_UP_SECONDS", 600.0)  # all lines are counted, also on a busy machine
    monkeypatch.setattr(writer, "open", recording_open)
    monkeypatch.setattr(task_log, "_shared_writer", lambda: writer)
    return queues


def submit_flood(cluster, lines=LINES, width=99):
    script = f"seq -f '%0{width}.0f' {lines}; echo 'trainjob result: {RESULT}'; seq -f 'after %.0f' 100"
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    return submit(cluster, job, RunKey("test", "flood", "t", uuid.uuid4().hex))


def make_trigger(reference, log, **more):
    trigger = TrainJobTrigger(
        reference=reference.to_dict(),
        limits=Limits().to_dict(),
        deadline=None,
        kubernetes_conn_id="kubernetes_default",
        **more,
    )
    trigger._log = log
    return trigger


async def run_triggers(triggers, queues=()):
    """Return the payloads of the triggers' events, and the maximum number of queued lines."""
    max_queued, is_over = 0, asyncio.Event()

    async def observe():
        nonlocal max_queued
        while not is_over.is_set():
            max_queued = max(max_queued, *(len(queue) for queue in queues), 0)
            await asyncio.sleep(0.01)

    async def first_event(waiting):
        async for event in waiting.run():
            return event.payload
        raise AssertionError("no event")

    observing = asyncio.create_task(observe())
    payloads = await asyncio.gather(*map(first_event, triggers))
    is_over.set()
    await observing
    return payloads, max_queued


def parse_skip_notices(lines):
    """Return written numbers, other lines, and the counts of skipped lines and notices."""
    notices = [match for line in lines if (match := re.match(r"\[node-0\] ([0-9,]+) lines \(.*\) were skipped", line))]
    numbers = [int(match[1]) for line in lines if (match := re.fullmatch(r"\[node-0\] (\d+)", line))]
    others = [line for line in lines if re.match(r"\[node-0\] (after|trainjob result)", line)]
    return numbers, others, sum(int(match[1].replace(",", "")) for match in notices), len(notices)


def test_a_flood_is_written_by_another_thread_in_bounded_memory_and_keeps_the_result(cluster, small_log_queues):
    log, reference = BlockingLog(), submit_flood(cluster)
    [payload], max_queued = asyncio.run(run_triggers([make_trigger(reference, log)], small_log_queues))
    assert payload["outcome"]["phase"] == "Complete"
    assert payload["receipt"] == {"result": {"score": 7}}
    assert threading.get_ident() not in log.threads  # the loop's thread
    numbers, others, skipped, notices = parse_skip_notices(log.lines)
    assert numbers == sorted(set(numbers))
    assert len(numbers) + len(others) + skipped == LINES + 101
    assert notices >= 1
    assert others[-20:] == [f"[node-0] after {n}" for n in range(81, 101)]
    assert max_queued <= MAX_QUEUED_LINES + 2 * 21
    assert any(f"kubectl logs {reference.name}-node-0-0" in line and "-c node -n default" in line for line in log.lines)
    assert any(line.startswith(f"TrainJob {reference}: Complete") for line in log.lines)


def test_a_task_does_not_wait_for_a_log_that_is_far_behind(cluster, small_log_queues, monkeypatch):
    monkeypatch.setattr(task_progress, "_CATCH_UP_SECONDS", 0.0)
    log, reference = BlockingLog(), submit_flood(cluster, 20 * LINES)
    [payload], _ = asyncio.run(run_triggers([make_trigger(reference, log)], small_log_queues))
    assert payload["receipt"] == {"result": {"score": 7}}
    numbers, others, skipped, _ = parse_skip_notices(log.lines)
    assert numbers == sorted(set(numbers))
    assert len(numbers) + len(others) + skipped < 20 * LINES
    assert others[-20:] == [f"[node-0] after {n}" for n in range(81, 101)]
    [notice] = [line for line in log.lines if "may be missing" in line]
    assert f"kubectl logs {reference.name}-node-0-0" in notice


def test_many_floods_share_one_thread_and_all_their_lines_are_counted(cluster, small_log_queues):
    logs, lines = [BlockingLog() for _ in range(5)], 5000
    waiting = [make_trigger(submit_flood(cluster, lines), log) for log in logs]
    payloads, _ = asyncio.run(run_triggers(waiting, small_log_queues))
    assert {payload["outcome"]["phase"] for payload in payloads} == {"Complete"}
    assert len(set.union(*(log.threads for log in logs))) == 1
    for log in logs:
        numbers, others, skipped, _ = parse_skip_notices(log.lines)
        assert len(numbers) + len(others) + skipped == lines + 101


def test_with_get_logs_false_the_log_has_no_container_lines_and_the_event_has_the_result(cluster, small_log_queues):
    log, reference = BlockingLog(), submit_flood(cluster, 1000)
    [payload], _ = asyncio.run(run_triggers([make_trigger(reference, log, get_logs=False)], small_log_queues))
    assert payload["receipt"] == {"result": {"score": 7}}
    assert log.lines
    assert all(line.startswith("TrainJob ") for line in log.lines)


def test_a_trigger_that_an_earlier_version_serialized_still_loads():
    arguments = {
        "reference": {"name": "n", "namespace": "ns", "uid": "u", "attempt": 1, "adopted": False},
        "limits": Limits().to_dict(),
        "deadline": None,
        "kubernetes_conn_id": "k",
        "on_kill_action": "keep",
    }
    none_given = dict.fromkeys(("log_containers", "cluster_context", "in_cluster"))
    new_arguments = {"get_logs": True, "deferral_id": "", "do_xcom_push": True, **none_given}
    assert TrainJobTrigger(**arguments).serialize()[1] == {**arguments, **new_arguments}


def test_lines_of_containers_that_log_containers_does_not_name_are_left_out(cluster, small_log_queues):
    log, reference = BlockingLog(), submit_flood(cluster, 1000)
    trigger = make_trigger(reference, log, log_containers=["proxy"])
    [payload], _ = asyncio.run(run_triggers([trigger], small_log_queues))
    assert payload["receipt"] == {"result": {"score": 7}}
    assert all(line.startswith("TrainJob ") for line in log.lines)
    [notice] = [line for line in log.lines if "container" in line]
    assert "lines of container node are not written here, because log_containers names only proxy" in notice
    assert f"kubectl logs {reference.name}-node-0-0" in notice


@pytest.mark.parametrize(("get_logs", "log_containers"), [(True, None), (False, None), (True, ["node"])])
def test_an_operator_passes_the_selection_of_logs_to_its_trigger(cluster, get_logs, log_containers, monkeypatch):
    deferred = []
    monkeypatch.setattr(TrainJobOperator, "defer", lambda _, *, trigger, **more: deferred.append(trigger))
    operator = TrainJobOperator(
        task_id="t",
        trainer=CustomTrainerContainer(image="x", command=["y"]),
        get_logs=get_logs,
        log_containers=log_containers,
    )
    instance = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1)
    operator._defer({"ti": instance}, submit_flood(cluster, 1), Limits(), deadline=None)
    assert (deferred[0].get_logs, deferred[0].log_containers) == (get_logs, log_containers)
    assert (
        FineTuneOperator(
            task_id="f", model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", get_logs=get_logs
        ).get_logs
        is get_logs
    )


@pytest.mark.parametrize(
    ("text", "rate"), [("250000", 250_000), ("0", 100_000), ("-5", 100_000), ("fast", 100_000), (None, 100_000)]
)
def test_a_setting_limits_the_rate_of_the_task_log(text, rate, monkeypatch, caplog):
    if text:
        monkeypatch.setenv("AIRFLOW__TRAINJOB__LOG_BYTES_PER_SECOND", text)
    assert task_log._read_bytes_per_second() == rate
    assert ("log_bytes_per_second" in caplog.text) == (text in ("0", "-5", "fast"))

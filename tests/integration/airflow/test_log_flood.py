"""A job that prints much more than Airflow's log takes: the triggerer's event loop writes none of it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit
from trainjob.client import LogWriter
from trainjob.client.log_queue import QueueLimits
from trainjob.lifecycle import Limits
from trainjob_airflow import FineTuneOperator, TrainJobOperator, TrainJobTrigger, task_log

pytestmark = pytest.mark.usefixtures("airflow_environment")

LINES = 50_000
HELD = 50  # lines in the queue
RESULT = '{"score": 7}'


class BlockingLog:
    """Takes 1.6 ms for each line, as Airflow's log socket does when it is full; notes which thread wrote it."""

    def __init__(self):
        self.lines, self.threads = [], set()

    def info(self, text):
        time.sleep(0.0016)
        self.threads.add(threading.get_ident())
        self.lines.append(text)


@pytest.fixture
def small_log_queues(monkeypatch):
    """The triggerer's log with little room and little patience; every queue that it opens."""
    writer, queues = LogWriter(queue_limits=QueueLimits(lines=HELD, max_wait=0.5, kept_lines=20)), []
    opened = writer.open

    def noting_open(write):
        channel = opened(write)
        queues.append(channel._queue)
        return channel

    monkeypatch.setattr(writer, "open", noting_open)
    monkeypatch.setattr(task_log, "_writer", lambda: writer)
    return queues


def submit_flood(cluster, lines=LINES, width=99):
    script = f"seq -f '%0{width}.0f' {lines}; echo 'trainjob result: {RESULT}'; seq -f 'after %.0f' 100"
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    return submit(cluster, job, RunKey("test", "flood", "t", uuid.uuid4().hex))


def make_trigger(reference, log, **more):
    made = TrainJobTrigger(
        reference=reference.to_dict(),
        limits=Limits().to_dict(),
        deadline=None,
        kubernetes_conn_id="kubernetes_default",
        **more,
    )
    made._log = log
    return made


async def run_triggers(triggers, queues=()):
    """The payloads of the triggers' events, and how many lines were held at most meanwhile."""
    most, is_over = 0, asyncio.Event()

    async def look():
        nonlocal most
        while not is_over.is_set():
            most = max(most, *(len(queue) for queue in queues), 0)
            await asyncio.sleep(0.01)

    async def first_event(waiting):
        async for event in waiting.run():
            return event.payload
        raise AssertionError("no event")

    looking = asyncio.create_task(look())
    payloads = await asyncio.gather(*map(first_event, triggers))
    is_over.set()
    await looking
    return payloads, most


def parse_skip_notices(lines):
    """Return the numbers of the lines that were written, in order, and the sum of the lines that the notices count."""
    notices = [match for line in lines if (match := re.match(r"\[node-0\] ([0-9,]+) lines \(.*\) were skipped", line))]
    numbers = [int(match[1]) for line in lines if (match := re.fullmatch(r"\[node-0\] (\d+)", line))]
    others = [line for line in lines if re.match(r"\[node-0\] (after|trainjob result)", line)]
    return numbers, others, sum(int(match[1].replace(",", "")) for match in notices), len(notices)


def test_a_flood_is_written_by_another_thread_in_bounded_memory_and_its_result_is_not_lost(cluster, small_log_queues):
    log, reference = BlockingLog(), submit_flood(cluster)
    [payload], most = asyncio.run(run_triggers([make_trigger(reference, log)], small_log_queues))
    assert payload["outcome"]["phase"] == "Complete"
    assert payload["receipt"] == {"result": {"score": 7}}
    assert threading.get_ident() not in log.threads  # the loop's thread
    numbers, others, skipped, notices = parse_skip_notices(log.lines)
    assert numbers == sorted(set(numbers))
    assert len(numbers) + len(others) + skipped == LINES + 101
    assert notices >= 1
    assert others[-20:] == [f"[node-0] after {n}" for n in range(81, 101)]
    assert most <= HELD + 2 * 21
    assert any(f"kubectl logs {reference.name}-node-0-0" in line and "-c node -n default" in line for line in log.lines)
    assert any(line.startswith(f"TrainJob {reference}: Complete") for line in log.lines)


def test_many_floods_share_one_thread_and_each_is_told_whole(cluster, small_log_queues):
    logs, lines = [BlockingLog() for _ in range(5)], 5000
    waiting = [make_trigger(submit_flood(cluster, lines), log) for log in logs]
    payloads, _ = asyncio.run(run_triggers(waiting, small_log_queues))
    assert {payload["outcome"]["phase"] for payload in payloads} == {"Complete"}
    assert len(set.union(*(log.threads for log in logs))) == 1
    for log in logs:
        numbers, others, skipped, _ = parse_skip_notices(log.lines)
        assert len(numbers) + len(others) + skipped == lines + 101


def test_without_logs_nothing_of_the_container_is_written_and_the_result_comes(cluster, small_log_queues):
    log, reference = BlockingLog(), submit_flood(cluster, 1000)
    [payload], _ = asyncio.run(run_triggers([make_trigger(reference, log, get_logs=False)], small_log_queues))
    assert payload["receipt"] == {"result": {"score": 7}}
    assert log.lines
    assert all(line.startswith("TrainJob ") for line in log.lines)


def test_a_trigger_that_an_earlier_version_has_serialized_still_loads():
    arguments = {
        "reference": {"name": "n", "namespace": "ns", "uid": "u", "attempt": 1, "adopted": False},
        "limits": Limits().to_dict(),
        "deadline": None,
        "kubernetes_conn_id": "k",
        "on_kill_action": "keep",
    }
    assert TrainJobTrigger(**arguments).serialize()[1] == {**arguments, "get_logs": True}


@pytest.mark.parametrize("get_logs", [True, False])
def test_an_operator_hands_get_logs_to_its_trigger(cluster, get_logs, monkeypatch):
    deferred = []
    monkeypatch.setattr(TrainJobOperator, "defer", lambda _, *, trigger, **more: deferred.append(trigger))
    operator = TrainJobOperator(
        task_id="t", trainer=CustomTrainerContainer(image="x", command=["y"]), get_logs=get_logs
    )
    operator._defer(submit_flood(cluster, 1), Limits())
    assert deferred[0].get_logs is get_logs
    assert FineTuneOperator(task_id="f", model="llama3.2-1b", workspace="w", get_logs=get_logs).get_logs is get_logs

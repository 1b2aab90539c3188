"""Tests of the memory and the errors of a log follower."""

from __future__ import annotations

from types import SimpleNamespace

from trainjob.client import LogFollower, LogLine, LogNotice, ObjectEvent, log_follower


class IdleExecutor:
    """Executor that counts the submitted logs and reads none of them."""

    completed = 0

    def __init__(self):
        self.tasks = []

    def submit(self, task):
        self.tasks.append(task)
        return True

    def cancel(self, task):
        return True

    is_stalled = False


def pod(number):
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    metadata = {"name": f"pod-{number}", "uid": f"uid-{number}"}
    return {"metadata": metadata, "status": {"containerStatuses": [{"name": "node", "state": state}]}}


def test_logs_of_old_pods_are_forgotten_and_never_those_that_are_being_read(monkeypatch):
    monkeypatch.setattr(log_follower, "_MAX_LOGS", 3)
    executor = IdleExecutor()
    cluster = SimpleNamespace(live_log_executor=executor, ended_log_executor=executor)
    follower = LogFollower(cluster, "ns", lambda _: None)
    for number in range(10):
        follower.observe(ObjectEvent(pod(number)))
        if number > 0:  # the log of the first pod is never read
            executor.tasks[-1].is_scheduled = False
        follower.observe(ObjectEvent(pod(number), deleted=True))
    assert [key[0] for key in follower._logs] == ["uid-0", "uid-8", "uid-9"]


def test_a_log_that_is_read_after_others_makes_progress_whatever_their_number_is():
    """The number of its failed requests may equal that of the logs read before it."""
    executor = IdleExecutor()
    follower = LogFollower(SimpleNamespace(live_log_executor=executor, ended_log_executor=executor), "ns", print)
    follower.observe(ObjectEvent(pod(0)))
    [log], executor.completed = follower._logs.values(), 3
    waiting = follower._measure_progress(log)
    log.is_being_read, log.outages = True, 3
    assert follower._measure_progress(log) != waiting


def test_an_exception_of_a_callback_is_logged_once_and_counted_in_a_notice(caplog):
    written = []

    def emit(line):
        if line.text in ("2", "3"):
            raise OSError("No space left on device")
        written.append(line)

    executor = IdleExecutor()
    cluster = SimpleNamespace(live_log_executor=executor, ended_log_executor=executor)
    follower = LogFollower(cluster, "ns", emit)
    follower._emit_lines([LogLine("node-0", text) for text in "12345"])
    follower.finish(0.0)
    *lines, notice = written
    assert [line.text for line in lines] == ["1", "4", "5"]
    assert isinstance(notice, LogNotice)
    assert notice.text == (
        "2 lines of the log could not be processed; the first error: OSError: No space left on device"
    )
    assert len(caplog.records) == 1

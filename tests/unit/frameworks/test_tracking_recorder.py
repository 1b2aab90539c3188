"""The recorder with a tracker that fails: what it sends, and the lines that it writes to the log."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading

import pytest

from trainjob.frameworks.tracking import recorder as module
from trainjob.frameworks.tracking import recorder_process
from trainjob.frameworks.tracking.recorder import Inbox, Recorder
from trainjob.frameworks.tracking.recorder_process import RecorderProcess
from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.frameworks.tracking.trackers import StepValues


class FailingTracker:
    """A tracker whose methods fail at first.

    Args:
        **failures: how often each method fails.
    """

    title = "the tracker"

    def __init__(self, **failures):
        self._failures = failures
        self.calls = []

    def _call(self, name, *values):
        if self._failures.get(name, 0):
            self._failures[name] -= 1
            raise ConnectionError(f"no answer to {name} at http://user:password@tracker")
        self.calls.append((name, *values))

    def open(self):
        self._call("open")
        return ["run 1"]

    def record(self, steps):
        self._call("record", [step.step for step in steps])

    def close(self, end):
        self._call("close", end)


@pytest.fixture(autouse=True)
def without_delays(monkeypatch):
    for name in ("_COLLECT_SECONDS", "_FIRST_DELAY", "_MAX_DELAY"):
        monkeypatch.setattr(module, name, 0.0)


def line_of(step):
    return json.dumps({"step": step, "time": 1.0, "values": {"loss": 0.5}}) + "\n"


def end_line(exit_code=0, *, is_terminated=False):
    return json.dumps({"exit_code": exit_code, "is_terminated": is_terminated}) + "\n"


def record(tracker, lines):
    """Record these lines, and return the log."""
    inbox, output = Inbox(), io.StringIO()
    inbox.fill(lines)
    Recorder(tracker, inbox, output).run()
    return output.getvalue().splitlines()


def test_all_steps_are_sent_and_the_run_is_ended():
    tracker = FailingTracker()
    assert record(tracker, [line_of(1), line_of(2), end_line(3, is_terminated=True)]) == ["tracking: run 1"]
    assert tracker.calls == [("open",), ("record", [1, 2]), ("close", TrainingEnd(3, is_terminated=True))]


def test_a_training_without_steps_ends_the_run():
    tracker = FailingTracker()
    record(tracker, [end_line()])
    assert tracker.calls == [("open",), ("close", TrainingEnd(0))]


@pytest.mark.parametrize("failures", [{"open": 1}, {"open": 5}, {"record": 3}, {"close": 2}, {"open": 2, "close": 2}])
def test_a_failure_is_logged_once_and_everything_is_sent_later(failures):
    tracker = FailingTracker(**failures)
    lines = record(tracker, [line_of(1), end_line()])
    assert tracker.calls == [("open",), ("record", [1]), ("close", TrainingEnd(0))]
    first = next(iter(failures))
    failure = (
        "tracking: the tracker failed, and is tried again while the training continues: "
        f"ConnectionError: no answer to {first} at http://***@tracker"
    )
    assert sorted(lines) == sorted(["tracking: run 1", failure])


@pytest.mark.parametrize("end", [[], ['{"exit_code": 0']])
def test_a_training_that_is_killed_has_no_end(end):
    tracker = FailingTracker()
    record(tracker, [line_of(1), *end])
    assert tracker.calls[1:] == [("record", [1]), ("close", TrainingEnd(137))]


def test_steps_are_sent_in_batches():
    tracker = FailingTracker()
    record(tracker, [*map(line_of, range(1, 1202)), end_line()])
    assert [len(steps) for name, *given in tracker.calls if name == "record" for steps in given] == [500, 500, 201]


def test_the_oldest_steps_are_lost_if_too_many_wait(monkeypatch):
    monkeypatch.setattr(module, "_MAX_WAITING", 3)
    tracker = FailingTracker(open=1)
    lines = record(tracker, [*map(line_of, range(1, 6)), end_line()])
    assert tracker.calls[1] == ("record", [3, 4, 5])
    cause = "ConnectionError: no answer to open at http://***@tracker"
    assert lines == [
        f"tracking: the tracker failed, and is tried again while the training continues: {cause}",
        "tracking: run 1",
        f"tracking: 2 of 5 steps were not sent to the tracker: {cause}",
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_not_tried_again_after_the_training(status):
    class Refused(Exception):
        def get_http_status_code(self):
            return status

    class Tracker(FailingTracker):
        def open(self):
            self.calls.append("open")
            raise Refused("no such user")

    tracker = Tracker()
    lines = record(tracker, [line_of(1), end_line()])
    assert tracker.calls == ["open"]
    assert lines[1:] == ["tracking: 1 of 1 steps were not sent to the tracker: Refused: no such user"]


def test_what_was_not_sent_is_described():
    inbox = Inbox()
    recorder = Recorder(FailingTracker(), inbox, io.StringIO())
    assert recorder.describe_unsent() == ("the end of the run was not sent to the tracker: it did not respond in time")
    inbox.fill([line_of(1), line_of(2)])
    inbox.remove(inbox.first()[:1])
    assert recorder.describe_unsent() == "1 of 2 steps were not sent to the tracker: it did not respond in time"


def test_a_long_error_keeps_its_start_and_its_end():
    class Tracker(FailingTracker):
        def _call(self, name, *values):
            if name == "open" and not self.calls:
                self.calls.append("failed")
                raise ValueError("first\n" + "x" * 1000 + " last")

    [failure, _] = record(Tracker(), [end_line()])
    text = failure.partition("continues: ")[2]
    assert (text[:17], text[-6:], len(text)) == ("ValueError: first", "x last", 303)


def test_steps_that_arrive_later_are_sent(monkeypatch):
    """The recorder waits for the next step, and sends it while the training runs."""
    tracker, inbox = FailingTracker(), Inbox()
    is_first_sent = threading.Event()

    def lines():
        yield line_of(1)
        assert is_first_sent.wait(30)
        yield line_of(2)
        yield end_line()

    def record(steps):
        tracker.calls.append([step.step for step in steps])
        is_first_sent.set()

    monkeypatch.setattr(tracker, "record", record)
    filling = threading.Thread(target=inbox.fill, args=(lines(),))
    filling.start()
    Recorder(tracker, inbox, io.StringIO()).run()
    filling.join()
    assert tracker.calls == [("open",), [1], [2], ("close", TrainingEnd(0))]


def test_a_step_that_was_lost_meanwhile_removes_no_other():
    inbox = Inbox()
    inbox.fill([line_of(1), line_of(2)])
    sent = inbox.first()
    inbox.remove(sent)
    inbox.fill([line_of(3)])
    inbox.remove(sent)
    assert inbox.first() == [StepValues(3, 1.0, {"loss": 0.5})]


def test_without_a_temporary_folder_the_training_runs_without_the_recorder(monkeypatch):
    def fail():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    lines = []
    process = RecorderProcess(TrackedRun("tensorboard", "id", "name", {}, {}, {}), lines.append)
    process.put(b"Step 1 | loss:0.5 lr:0.1 \n")
    process.finish(TrainingEnd(0), 1.0)
    assert lines == [
        (
            "tracking: the recorder cannot be started, and the training continues without it: "
            "[Errno 2] No usable temporary directory found"
        )
    ]


@pytest.mark.parametrize(
    ("packed", "own", "expected"),
    [
        ([], None, None),
        ([], "/own", "/own"),
        (["/code.zip"], None, "/code.zip"),
        (["/code.zip"], "/own", "/code.zip:/own"),
    ],
)
def test_the_recorder_gets_the_packed_code(monkeypatch, packed, own, expected):
    """Without packed code, its environment is that of the program."""
    monkeypatch.setattr(recorder_process, "find_packed_code", lambda: packed)
    monkeypatch.setenv(recorder_process.PYTHON_VARIABLE, sys.executable)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if own is not None:
        monkeypatch.setenv("PYTHONPATH", own)
    started = []

    def start(command, **options):
        started.append((command[0], (options["env"] or os.environ).get("PYTHONPATH")))
        raise OSError("not started")

    monkeypatch.setattr(subprocess, "Popen", start)
    RecorderProcess(TrackedRun("tensorboard", "id", "name", {}, {}, {}), [].append)
    assert started == [(sys.executable, expected)]

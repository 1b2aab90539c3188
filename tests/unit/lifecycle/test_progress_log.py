"""Tests of the lines that a progress log writes."""

from __future__ import annotations

import pytest

from trainjob.client import LogLine
from trainjob.lifecycle import JobReference, ProgressLog
from trainjob.status import Progress

TUNE = JobReference("tune", "ml", "uid-1")


class ClockedProgressLog:
    """A progress log with a clock that the test controls."""

    def __init__(self):
        self.now, self.lines = 0.0, []
        self.progress_log = ProgressLog(TUNE, self.lines.append, lambda: self.now)

    def progress(self, step, total, *, seconds):
        self.now += seconds
        self.progress_log.log_progress(Progress(step=step, total=total))


@pytest.fixture
def log():
    return ClockedProgressLog()


def test_log_lines_have_their_rank_and_frames_are_omitted(log):
    log.progress_log.log_line(LogLine("node-1", "hello"))
    log.progress_log.log_line(LogLine("node-1", "1|3|Loss: 2.1: ...", frame=True))
    assert log.lines == ["[node-1] hello"]


def test_a_fast_training_logs_at_most_one_line_per_second_and_its_end(log):
    for step in range(1, 401):  # 4 s
        log.progress(step, 400, seconds=0.01)
    assert len(log.lines) <= 5
    assert "step 400/400 (100 %)" in log.lines[-1]


def test_a_slow_training_logs_one_line_for_each_five_percent(log):
    for step in range(1, 401):  # each 5 % take 40 s
        log.progress(step, 400, seconds=2.0)
    assert 19 <= len(log.lines) <= 22


def test_the_same_progress_is_logged_once(log):
    """A trainer may report its last step several times: with its loss, after an evaluation, and at the end."""
    for metrics in ({}, {"eval_loss": 0.5}, {"eval_loss": 0.5, "train_runtime": 9.0}):
        log.progress_log.log_progress(Progress(step=20, total=20, metrics=metrics))
    assert len(log.lines) == 1
    log.progress_log.log_progress(Progress(step=20, total=20, loss=0.25))
    assert len(log.lines) == 2


def test_a_training_of_unknown_length_logs_one_line_per_minute(log):
    for step in range(1, 31):
        log.progress(step, None, seconds=20.0)
    assert len(log.lines) == 10

"""Pace of a training, and when its steps count as slow."""

from __future__ import annotations

import pytest

from trainjob.frameworks.supervision.pace import Pace


class Training:
    """A training that makes steps by a clock of its own."""

    def __init__(self):
        self.pace, self._step, self._now = Pace(), 0, 0.0

    def make_steps(self, seconds, count):
        for _ in range(count):
            self._step, self._now = self._step + 1, self._now + seconds
            self.pace.observe(self._step, self._now)


@pytest.fixture
def training():
    return Training()


def test_the_median_needs_some_steps(training):
    training.make_steps(2.0, 3)
    assert training.pace.median is None
    training.make_steps(2.0, 1)
    assert training.pace.median == 2.0


def test_few_long_steps_such_as_evaluations_are_not_slow(training):
    for _ in range(20):
        training.make_steps(2.0, 20)
        training.make_steps(600.0, 1)
    assert training.pace.describe_slowness(1.01) == ""


def test_steps_that_take_longer_than_the_best_ones_are_slow(training):
    training.make_steps(30.0, 20)  # kernels are compiled
    training.make_steps(4.0, 200)
    training.make_steps(12.0, 20)
    assert training.pace.describe_slowness(2.0) == ""
    training.make_steps(12.0, 30)
    assert training.pace.describe_slowness(2.0) == "a step takes 12 s, 3.0 times as long as before (4 s)"
    assert training.pace.describe_slowness(3.5) == ""


def test_steps_between_two_looks_count_each():
    pace = Pace()
    for look in range(1, 100):
        pace.observe(10 * look, 5.0 * look)
    assert pace.median == pace.best == 0.5


def test_a_training_that_begins_again_has_no_negative_steps(training):
    training.make_steps(1.0, 10)
    training.pace.observe(1, 20.0)
    assert training.pace.median == 1.0

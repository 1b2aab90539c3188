"""How long to wait before asking again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client.backoff import Backoff, retry
from trainjob.errors import ClusterUnreachable, NotFound, ServerUnavailable


@given(
    asked=st.none() | st.floats(0, allow_nan=False),
    failures=st.integers(0, 2000),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_long(asked, failures, jitter):
    backoff = Backoff(jitter=lambda: jitter, _failures=failures)
    pause = backoff.next(ServerUnavailable("no", retry_after=asked))
    assert min(asked or 0.1, 30.0) <= pause <= 30.0


def test_each_is_twice_as_long():
    backoff = Backoff(jitter=lambda: 0.0)
    assert [backoff.next() for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    backoff.reset()
    assert backoff.next() == 0.2


class FakeClock:
    """Time that passes while it is slept."""

    def __init__(self):
        self.now, self.sleeps = 0.0, []

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


def fail_with(*errors):
    left = list(errors)

    def ask():
        if left:
            raise left.pop(0)
        return "yes"

    return ask


def test_asking_on_until_there_is_an_answer():
    clock = FakeClock()
    ask = fail_with(*[ClusterUnreachable("no")] * 5, ServerUnavailable("no", retry_after=7.0))
    assert retry(ask, clock=lambda: clock.now, sleep=clock.sleep) == "yes"
    assert len(clock.sleeps) == 6
    assert clock.sleeps[-1] >= 7.0


def test_not_for_ever():
    clock = FakeClock()
    with pytest.raises(ServerUnavailable):
        retry(fail_with(*[ServerUnavailable("no", retry_after=1e9)] * 99), clock=lambda: clock.now, sleep=clock.sleep)
    assert 30.0 <= clock.now <= 60.0


def test_what_does_not_mend_is_asked_once():
    clock = FakeClock()
    with pytest.raises(NotFound):
        retry(fail_with(NotFound("no")), clock=lambda: clock.now, sleep=clock.sleep)
    assert clock.sleeps == []

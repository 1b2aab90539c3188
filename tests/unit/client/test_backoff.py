"""Tests of the pauses between retries."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client.accepted_requests import AcceptedRequests, kind_of_request
from trainjob.client.backoff import Backoff, retry
from trainjob.errors import ClusterUnreachable, NotFound, PermissionDenied, ServerUnavailable, Unauthorized


@given(
    retry_after=st.none() | st.floats(0, allow_nan=False),
    failures=st.integers(0, 2000),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_at_most_the_longest_delay(retry_after, failures, jitter):
    backoff = Backoff(jitter=lambda: jitter, _failures=failures)
    pause = backoff.next(ServerUnavailable("no", retry_after=retry_after))
    assert min(retry_after or 0.1, 30.0) <= pause <= 30.0


def test_each_pause_is_twice_as_long_as_the_one_before():
    backoff = Backoff(jitter=lambda: 0.0)
    assert [backoff.next() for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    backoff.reset()
    assert backoff.next() == 0.2


class FakeClock:
    """Clock whose time passes only in `sleep`."""

    def __init__(self):
        self.now, self.sleeps = 0.0, []

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


def fail_with(*errors):
    remaining = list(errors)

    def request():
        if remaining:
            raise remaining.pop(0)
        return "yes"

    return request


def test_a_request_is_repeated_until_it_succeeds():
    clock = FakeClock()
    request = fail_with(*[ClusterUnreachable("no")] * 5, ServerUnavailable("no", retry_after=7.0))
    assert retry(request, clock=lambda: clock.now, sleep=clock.sleep) == "yes"
    assert len(clock.sleeps) == 6
    assert clock.sleeps[-1] >= 7.0


def test_a_request_is_not_repeated_after_the_timeout():
    clock = FakeClock()
    with pytest.raises(ServerUnavailable):
        retry(fail_with(*[ServerUnavailable("no", retry_after=1e9)] * 99), clock=lambda: clock.now, sleep=clock.sleep)
    assert 30.0 <= clock.now <= 60.0


def test_a_permanent_error_is_raised_after_the_first_request():
    clock = FakeClock()
    with pytest.raises(NotFound):
        retry(fail_with(NotFound("no")), clock=lambda: clock.now, sleep=clock.sleep)
    assert clock.sleeps == []


@pytest.mark.parametrize("error_class", [Unauthorized, PermissionDenied])
@pytest.mark.parametrize("worked_before", [True, False])
def test_a_refusal_is_retried_if_the_request_worked_before(error_class, worked_before):
    error, clock, accepted = error_class("no", retry_after=20.0), FakeClock(), AcceptedRequests()
    kind = kind_of_request("GET", "/api/v1/namespaces/a/pods")
    if worked_before:
        accepted.add(kind)
    accepted.record_error(error, kind)

    def refuse():
        raise error

    with pytest.raises(error_class):
        retry(refuse, clock=lambda: clock.now, sleep=clock.sleep)
    assert clock.sleeps == ([20.0] * 3 if worked_before else [])  # for 60 s, as Retry-After says
    assert error.retryable == (worked_before or error_class is Unauthorized)


def test_code_that_sets_the_seed_neither_repeats_the_jitter_nor_is_disturbed_by_it():
    delays = []
    for _ in range(2):
        random.seed(0)
        before = random.getstate()
        delays.append(Backoff().next())
        assert random.getstate() == before
    assert delays[0] != delays[1]

"""Tests of the bounded executor and of the cache of one value."""

from __future__ import annotations

import threading

import pytest

from trainjob.client.bounded_executor import BoundedExecutor
from trainjob.client.ttl_cache import TtlCache
from trainjob.errors import ClusterUnreachable

SECONDS = 60


class BlockingWork:
    """Work that blocks until the test ends it."""

    def __init__(self):
        self.started, self.released = threading.Event(), threading.Event()

    def __call__(self):
        self.started.set()
        assert self.released.wait(SECONDS)


def test_work_beyond_the_limit_waits_in_the_order_of_submission():
    executor, works = BoundedExecutor("test", 2), [BlockingWork() for _ in range(4)]
    assert [executor.submit(work) for work in works] == [True, True, False, False]
    assert works[0].started.wait(SECONDS)
    assert works[1].started.wait(SECONDS)
    assert not works[2].started.is_set()
    works[1].released.set()
    assert works[2].started.wait(SECONDS)
    assert not works[3].started.is_set()
    for work in works:
        work.released.set()
    assert works[3].started.wait(SECONDS)


def test_queued_work_can_be_cancelled():
    executor, first, second, third = BoundedExecutor("test", 1), BlockingWork(), BlockingWork(), BlockingWork()
    assert [executor.submit(work) for work in (first, second, third)] == [True, False, False]
    assert not executor.cancel(first)
    assert executor.cancel(second)
    assert not executor.cancel(second)
    for work in (first, third):
        work.released.set()
    assert third.started.wait(SECONDS)
    assert not second.started.is_set()


def test_work_that_raises_frees_its_thread(monkeypatch):
    executor, after = BoundedExecutor("test", 1), BlockingWork()
    may_fail, reported = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def fail():
        assert may_fail.wait(SECONDS)
        raise ValueError

    executor.submit(fail)
    assert not executor.submit(after)
    may_fail.set()
    after.released.set()
    assert after.started.wait(SECONDS)
    assert reported.wait(SECONDS)


def test_a_value_is_read_again_when_it_is_too_old():
    now, reads = [0.0], []
    cache = TtlCache(lambda: reads.append(now[0]) or len(reads), 15.0, lambda: now[0])
    assert [cache.get(), cache.get()] == [1, 1]
    now[0] = 15.0
    assert cache.get() == 1
    now[0] = 15.5
    assert cache.get() == 2
    assert reads == [0.0, 15.5]


def test_an_error_of_the_cluster_is_cached():
    """Thousands of callers share one time-out, so that they do not wait for it one after the other."""
    now, reads = [0.0], []

    def read():
        reads.append(now[0])
        raise ClusterUnreachable("no")

    cache = TtlCache(read, 15.0, lambda: now[0])
    for _ in range(3):
        with pytest.raises(ClusterUnreachable, match="no"):
            cache.get()
    now[0] = 15.5
    with pytest.raises(ClusterUnreachable, match="no"):
        cache.get()
    assert reads == [0.0, 15.5]


def test_another_error_is_not_cached():
    results = iter([ValueError("no"), "yes"])

    def read():
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    cache = TtlCache(read, 15.0, lambda: 0.0)
    with pytest.raises(ValueError, match="no"):
        cache.get()
    assert cache.get() == "yes"

"""Bounded threads, and answers that are shared for a while."""

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


def test_so_many_at_once_and_the_rest_in_turn():
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


def test_what_has_not_begun_is_taken_back():
    executor, first, second, third = BoundedExecutor("test", 1), BlockingWork(), BlockingWork(), BlockingWork()
    assert [executor.submit(work) for work in (first, second, third)] == [True, False, False]
    assert not executor.cancel(first)
    assert executor.cancel(second)
    assert not executor.cancel(second)
    for work in (first, third):
        work.released.set()
    assert third.started.wait(SECONDS)
    assert not second.started.is_set()


def test_work_that_fails_gives_its_place_free(monkeypatch):
    executor, after = BoundedExecutor("test", 1), BlockingWork()
    may_fail, told = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: told.set())

    def fail():
        assert may_fail.wait(SECONDS)
        raise ValueError

    executor.submit(fail)
    assert not executor.submit(after)
    may_fail.set()
    after.released.set()
    assert after.started.wait(SECONDS)
    assert told.wait(SECONDS)


def test_an_answer_is_asked_for_when_it_is_too_old():
    now, asked = [0.0], []
    recent = TtlCache(lambda: asked.append(now[0]) or len(asked), 15.0, lambda: now[0])
    assert [recent.get(), recent.get()] == [1, 1]
    now[0] = 15.0
    assert recent.get() == 1
    now[0] = 15.5
    assert recent.get() == 2
    assert asked == [0.0, 15.5]


def test_an_error_of_the_cluster_is_shared_as_well():
    """Else each of thousands would wait for its own time-out, one after the other."""
    now, asked = [0.0], []

    def ask():
        asked.append(now[0])
        raise ClusterUnreachable("no")

    recent = TtlCache(ask, 15.0, lambda: now[0])
    for _ in range(3):
        with pytest.raises(ClusterUnreachable, match="no"):
            recent.get()
    now[0] = 15.5
    with pytest.raises(ClusterUnreachable, match="no"):
        recent.get()
    assert asked == [0.0, 15.5]


def test_any_other_error_is_no_answer():
    answers = iter([ValueError("no"), "yes"])

    def ask():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recent = TtlCache(ask, 15.0, lambda: 0.0)
    with pytest.raises(ValueError, match="no"):
        recent.get()
    assert recent.get() == "yes"

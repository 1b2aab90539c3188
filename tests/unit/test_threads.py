"""Threads of this project: bounded executors, and starts that the operating system refuses."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading

import pytest

from tests.support.checkout import ROOT
from tests.support.refused_threads import RefusedStarts
from trainjob import threads
from trainjob.errors import OutOfThreads
from trainjob.threads import BoundedExecutor, run_on_executor, run_on_thread, start_thread

# Packages of the processes that wait. Programs in pods are packed alone, and the laptop cluster is not part of a wait.
PACKAGES = ("core/src/trainjob", "providers/airflow/src", "components/kfp/src")
PROGRAMS_IN_PODS = ("core/src/trainjob/programs/", "core/src/trainjob/frameworks/")
STARTS = r"threading\.(Thread|Timer)\(|ThreadPoolExecutor\(|\.run_in_executor\(|asyncio\.to_thread\("
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


def test_a_refused_start_is_a_typed_error_that_a_retry_can_fix():
    with RefusedStarts(lambda _: True), pytest.raises(OutOfThreads, match="refuses to start another thread") as caught:
        start_thread(pytest.fail, name="test")
    assert caught.value.retryable


def test_work_whose_start_was_refused_runs_at_the_next_start():
    executor, first, second = BoundedExecutor("test", 1), BlockingWork(), BlockingWork()
    with RefusedStarts(lambda _: True) as starts:
        assert not executor.submit(first)
        assert executor.is_stalled
        executor.start_queued()
        assert executor.is_stalled
        assert starts.count == 2
    assert not executor.submit(second)  # it starts the first one
    assert first.started.wait(SECONDS)
    assert not executor.is_stalled
    for work in (first, second):  # type: ignore[unreachable] # mypy assumes that it is still stalled
        work.released.set()
    assert second.started.wait(SECONDS)


def test_a_thread_that_runs_takes_the_work_whose_start_was_refused():
    executor, first, second = BoundedExecutor("test", 2), BlockingWork(), BlockingWork()
    executor.submit(first)
    with RefusedStarts(lambda _: True):
        assert not executor.submit(second)
        first.released.set()
        assert second.started.wait(SECONDS)
    second.released.set()


def test_no_thread_is_lost_by_refused_starts():
    """The reserved places of refused threads are free again, and the order stays."""
    executor, works = BoundedExecutor("test", 2), [BlockingWork() for _ in range(3)]
    with RefusedStarts(lambda _: True):
        assert [executor.submit(work) for work in works] == [False] * 3
    executor.start_queued()
    assert works[0].started.wait(SECONDS)
    assert works[1].started.wait(SECONDS)
    assert not works[2].started.is_set()
    for work in works:
        work.released.set()
    assert works[2].started.wait(SECONDS)


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(threads, "RETRY_SECONDS", 0.01)


def test_a_call_whose_thread_was_refused_runs_after_a_pause(short_pauses):
    async def call() -> int:
        with RefusedStarts(lambda n: n <= 3) as starts:
            result = await asyncio.wait_for(run_on_thread(threading.get_ident), SECONDS)
        assert starts.count == 4
        return result

    assert asyncio.run(call()) != threading.get_ident()


def test_a_call_without_a_thread_ends_with_an_error_and_does_not_run_later(short_pauses, monkeypatch):
    monkeypatch.setattr(threads, "_MAX_SECONDS", 0.05)

    async def call() -> None:
        executor = BoundedExecutor("test", 1)
        with RefusedStarts(lambda _: True), pytest.raises(OutOfThreads):
            await asyncio.wait_for(run_on_executor(executor, pytest.fail), SECONDS)
        await asyncio.wait_for(run_on_executor(executor, list), SECONDS)

    asyncio.run(call())


def test_a_cancelled_call_without_a_thread_does_not_run_later(short_pauses):
    async def call() -> None:
        executor = BoundedExecutor("test", 1)
        with RefusedStarts(lambda _: True):
            cancelled = run_on_executor(executor, pytest.fail)
            cancelled.cancel()
        await asyncio.wait_for(run_on_executor(executor, list), SECONDS)
        assert not executor.is_stalled

    asyncio.run(call())


def test_a_call_on_a_thread_has_the_context_of_its_caller_and_raises_where_it_is_awaited():
    variable = contextvars.ContextVar("variable", default="")

    def read() -> None:
        raise ValueError(variable.get())

    async def call() -> None:
        variable.set("the context")
        with pytest.raises(ValueError, match="the context"):
            await run_on_thread(read)

    asyncio.run(call())


def test_no_other_module_starts_a_thread():
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    starts = {name: re.findall(STARTS, text) for name, text in names.items() if not name.startswith(PROGRAMS_IN_PODS)}
    assert {name for name, found in starts.items() if found} == {"core/src/trainjob/threads.py"}

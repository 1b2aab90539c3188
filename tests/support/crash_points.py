"""The named points in the life of a run at which a process dies, and the trap that kills or holds it there.

A point is before or after one function, whose name the trap wraps in the process that is to die; nothing in the product
knows of it. The trap is armed by a file, so that it closes once however often the process is started again, and what is
left of it shows that the point was reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import importlib
import inspect
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """A moment of a run's life.

    Attributes:
        name: its name.
        side: `before` or `after` the function.
        where: the function, as `module:qualified.name`.
        within: only while this function is at work; empty means always.
        fails_first: the first TrainJob's command fails, and the next one's does not.
    """

    name: str
    side: str
    where: str
    within: str = ""
    fails_first: bool = False

    @property
    def slug(self) -> str:
        """The name as a file or a task may have it."""
        return re.sub("[^a-z]+", "-", self.name)


_API, _WAITING = "trainjob.client.cluster:Cluster", "trainjob.lifecycle.wait_session:WaitSession"
_ANSWER = "urllib3.connection:HTTPConnection.getresponse"

ASKED = Point("about to list", "before", f"{_API}.list_trainjobs")
LISTED = Point("listed", "after", f"{_API}.list_trainjobs")
DECIDED = Point("decided to create", "before", f"{_API}.create_trainjob")
SENT = Point("create sent", "before", _ANSWER, within=f"{_API}.create_trainjob")
CARRIED_OUT = Point("create carried out, answer unread", "after", _ANSWER, within=f"{_API}.create_trainjob")
ANSWERED = Point("create answered", "after", f"{_API}.create_trainjob")
ABOUT_TO_ADOPT = Point("about to adopt", "before", f"{_API}.patch_trainjob")
ADOPTED = Point("adopted", "after", f"{_API}.patch_trainjob")
SUBMITTED = Point("submitted", "before", f"{_WAITING}.open")
WAITING = Point("waiting", "after", f"{_WAITING}.observe")
TERMINAL = Point("terminal state seen", "before", f"{_WAITING}.conclude")
FAILED = Point("failed, about to end it", "before", f"{_API}.delete_trainjob", f"{_WAITING}.conclude", fails_first=True)
ENDED = Point("failed, ended", "after", f"{_API}.delete_trainjob", f"{_WAITING}.conclude", fails_first=True)
KNOWN = Point("outcome known", "after", f"{_WAITING}.conclude")

CREATION = (ASKED, LISTED, DECIDED, SENT, CARRIED_OUT, ANSWERED)
"""From the question to the answer; the same code in every actor that creates."""
ONLY_FOR_ONE = (SENT, CARRIED_OUT, ANSWERED)
"""Who comes second adopts."""
ADOPTION = (ABOUT_TO_ADOPT, ADOPTED)
"""Instead of that, where another one has made the TrainJob."""
ATTENDANCE = (WAITING, TERMINAL, FAILED, ENDED, KNOWN)
"""From there to the outcome, for who waits in its own process."""
QUICK = (SENT, ANSWERED, KNOWN)
"""Those at which one dies alone in `make test`; at the others in `make slow`."""
# "Persisted" is a point of Airflow's workers only: to the core and to KFP's launcher the cluster is the only memory.
CORE = (
    *CREATION,
    *ADOPTION,
    SUBMITTED,
    *ATTENDANCE,
    Point("outcome reported", "after", "core_actor:report"),
    Point("about to clean up", "before", "core_actor:clean_up"),
    Point("cleaned up", "after", "core_actor:clean_up"),
)
LAUNCHER = (
    *CREATION,
    *ADOPTION,
    SUBMITTED,
    *ATTENDANCE,
    Point("outcome reported", "after", "kfp.dsl.executor:Executor.write_executor_output"),
)
# A launcher that is told to end cleans up at once.


def dying_alone(points: Iterable[Point]) -> list[Any]:
    """A test's parameters: those of [QUICK][] for `make test`, all others marked as slow."""
    import pytest

    return [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.slow], id=one.slug) for one in points]


_ORDER = "trainjob_kfp.deletion:Order.carry_out"
ABOUT_TO_DELETE = Point("about to clean up", "before", _ORDER)
TERMINATION = (
    ABOUT_TO_DELETE,
    Point("clean-up sent", "before", _ANSWER, within=_ORDER),
    Point("cleaned up", "after", f"{_API}.delete_trainjob", within=_ORDER),
)
_OPERATOR = "trainjob_airflow.operators.base:StepOperator"
_TRIGGER = "trainjob_airflow.triggers.trainjob:TrainJobTrigger"
# A task that is deferred waits in no process of its own: these are the points before and after that.
DEFERRED_TASK = (
    *CREATION,
    Point("persisted", "after", "trainjob_airflow.operators.submission:_remember"),
    Point("about to be deferred", "before", f"{_OPERATOR}._defer"),
    Point("back from the triggerer", "before", f"{_OPERATOR}.execute_complete"),
    Point("outcome reported", "after", "airflow.sdk.execution_time.task_runner:_push_xcom_if_needed"),
)
TASK_ON_WORKER = ATTENDANCE
# Where a first try, whose supervisor is dead, goes on beside the second.
ZOMBIE = (DECIDED, ANSWERED, WAITING, KNOWN)
# The triggerer creates nothing, and cleans up only where a container has failed or a person has decided.
TRIGGER = (
    Point("trigger started", "before", f"{_TRIGGER}._wait"),
    *ATTENDANCE,
    Point("outcome reported", "after", f"{_TRIGGER}.run"),
)
# A triggerer that was taken for dead hears that another one has its triggers.
HANDED_OVER = Point("handed to another triggerer", "after", "trainjob_airflow.termination:is_anothers_now")
# A person has marked the task failed: its TrainJob is to go.
KILLED_TASK = (
    Point("about to clean up", "before", f"{_API}.delete_trainjob", within=f"{_OPERATOR}._give_up"),
    Point("cleaned up", "after", f"{_API}.delete_trainjob", within=f"{_OPERATOR}._give_up"),
)
KILLED_TRIGGER = (
    Point("about to clean up", "before", f"{_API}.delete_trainjob", within=f"{_TRIGGER}.on_kill"),
    Point("cleaned up", "after", f"{_API}.delete_trainjob", within=f"{_TRIGGER}.on_kill"),
)

# Between a TrainJob's creation and its waiting, for errors in place of deaths.
REMEMBERED = Point("persisted", "after", "trainjob_airflow.operators.submission:_remember")
LINKED = Point("before its links", "before", f"{_OPERATOR}._link_to")
LIMITED = Point("before its limits", "before", f"{_OPERATOR}._limits")
DEFERRING = Point("about to be deferred", "before", f"{_OPERATOR}._defer")
TRIGGERED = Point("trigger started", "before", f"{_TRIGGER}._wait")
TRIGGER_CONNECTED = Point("trigger connects", "before", f"{_TRIGGER}._cluster")
ACCOUNTED = Point("before its account", "before", "trainjob_airflow.telling:Account.__init__")

_here: contextvars.ContextVar[Path | None] = contextvars.ContextVar("crash_folder", default=None)
_within: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("crash_within", default=frozenset())


def arm(folder: Path, point: Point, how: str = "die") -> None:
    """Set a trap.

    Args:
        folder: its place; whoever works there is trapped once.
        point: where it closes.
        how: `die`: the process gets SIGKILL. `hold`: it stays there until [let_go][]. `pass`: it is noted only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "armed").write_text(f"{point.name}\n{how}")


def reached(folder: Path) -> int | None:
    """The process that reached the point; None before."""
    try:
        return int((folder / "reached").read_text())
    except FileNotFoundError:
        return None


def let_go(folder: Path) -> None:
    """Who is held goes on."""
    (folder / "go_on").touch()


def work_in(folder: Path | None) -> None:
    """From now on, in this context, the trap of this folder counts."""
    _here.set(folder)


def install(points: Iterable[Point], folder: Path | None = None) -> None:
    """Watch these points in this process.

    Args:
        points: which.
        folder: where its trap is; None where each context has its own, see [work_in][].
    """
    for point in points:
        if point.within:
            _wrap(point.within, functools.partial(_marking, name=point.within))
        _wrap(point.where, functools.partial(_trapping, point=point, folder=folder))


@contextlib.contextmanager
def failing(point: Point, error: Exception) -> Iterator[None]:
    """Raise an error at a point in this process, once; the function is itself again in the end.

    Args:
        point: one without `within`.
        error: what to raise there.
    """
    module, _, path = point.where.partition(":")
    *parents, name = path.split(".")
    owner = functools.reduce(getattr, parents, importlib.import_module(module))
    original, left = getattr(owner, name), [error]

    def fail(side: str) -> None:
        if side == point.side and left:
            raise left.pop()

    @functools.wraps(original)
    def failed(*arguments: Any, **more: Any) -> Any:
        fail("before")
        answer = original(*arguments, **more)
        fail("after")
        return answer

    @functools.wraps(original)
    async def failed_async(*arguments: Any, **more: Any) -> Any:
        fail("before")
        answer = await original(*arguments, **more)
        fail("after")
        return answer

    setattr(owner, name, failed_async if inspect.iscoroutinefunction(original) else failed)
    try:
        yield
        assert not left, f"{point.name} was not reached"
    finally:
        setattr(owner, name, original)


def _wrap(where: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module, _, path = where.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, wrapper(getattr(owner, name)))


def _marking(work: Callable[..., Any], name: str) -> Callable[..., Any]:
    @contextlib.contextmanager
    def inside() -> Iterator[None]:
        token = _within.set(_within.get() | {name})
        try:
            yield
        finally:
            _within.reset(token)

    @functools.wraps(work)
    def marked(*arguments: Any, **more: Any) -> Any:
        with inside():
            return work(*arguments, **more)

    @functools.wraps(work)
    async def marked_async(*arguments: Any, **more: Any) -> Any:
        with inside():
            return await work(*arguments, **more)

    return marked_async if inspect.iscoroutinefunction(work) else marked


def _trapping(work: Callable[..., Any], point: Point, folder: Path | None) -> Callable[..., Any]:
    def closes(side: str) -> Path | None:
        """Where to stay; None to go on."""
        place = folder or _here.get()
        there = point.side == side and (not point.within or point.within in _within.get())
        return place if place and there and _take(place, point) else None

    @functools.wraps(work)
    def trapped(*arguments: Any, **more: Any) -> Any:
        _stay(closes("before"))
        answer = work(*arguments, **more)
        _stay(closes("after"))
        return answer

    @functools.wraps(work)
    async def trapped_async(*arguments: Any, **more: Any) -> Any:
        await _stay_async(closes("before"))
        answer = await work(*arguments, **more)
        await _stay_async(closes("after"))
        return answer

    @functools.wraps(work)
    async def trapped_generator(*arguments: Any, **more: Any) -> Any:
        async for item in work(*arguments, **more):
            yield item
            await _stay_async(closes("after"))

    if inspect.isasyncgenfunction(work):
        return trapped_generator
    return trapped_async if inspect.iscoroutinefunction(work) else trapped


def _take(folder: Path, point: Point) -> bool:
    """Whether the trap closes on this process, which it does once; `die` does not return."""
    try:
        name, how = (folder / "armed").read_text().splitlines()
    except FileNotFoundError:
        return False
    if name != point.name:
        return False
    mine = folder / f"{os.getpid()}"
    mine.write_text(str(os.getpid()))
    with contextlib.suppress(FileNotFoundError):
        (folder / "armed").unlink()  # another thread of this process, or another process, may be as fast
        mine.rename(folder / "reached")
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return how == "hold"
    return False


def _stay(folder: Path | None) -> None:
    while folder and not (folder / "go_on").exists():
        time.sleep(0.02)


async def _stay_async(folder: Path | None) -> None:
    while folder and not (folder / "go_on").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)

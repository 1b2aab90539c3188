"""Named points in a run at which a test kills or holds a process.

A point is before or after one function. The trap wraps that function in the process under test, so the product contains
no code for it. A file arms the trap, so it triggers only once, however often the process is restarted. The files that
the trap leaves show that the point was reached.
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
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CrashPoint:
    """A point before or after one function in the life of a run.

    Attributes:
        name: the point's name, as the reports show it.
        side: `before` or `after` the function.
        function: the function, as `module:qualified.name`.
        within: the point counts only while this function is running; empty means always.
        fails_first: the first TrainJob's command fails, and the next one's succeeds.
    """

    name: str
    side: str
    function: str
    within: str = ""
    fails_first: bool = False

    @property
    def slug(self) -> str:
        """The name in a form that file names and task IDs allow."""
        return re.sub("[^a-z]+", "-", self.name)


_API, _WAITING = "trainjob.client.cluster:Cluster", "trainjob.lifecycle.wait_session:WaitSession"
_GET_RESPONSE = "urllib3.connection:HTTPConnection.getresponse"

BEFORE_LIST = CrashPoint("about to list", "before", f"{_API}.list_trainjobs")
AFTER_LIST = CrashPoint("listed", "after", f"{_API}.list_trainjobs")
BEFORE_CREATE = CrashPoint("decided to create", "before", f"{_API}.create_trainjob")
CREATE_SENT = CrashPoint("create sent", "before", _GET_RESPONSE, within=f"{_API}.create_trainjob")
CREATE_EXECUTED = CrashPoint(
    "create carried out, answer unread", "after", _GET_RESPONSE, within=f"{_API}.create_trainjob"
)
AFTER_CREATE = CrashPoint("create answered", "after", f"{_API}.create_trainjob")
BEFORE_ADOPT = CrashPoint("about to adopt", "before", f"{_API}.patch_trainjob")
AFTER_ADOPT = CrashPoint("adopted", "after", f"{_API}.patch_trainjob")
SUBMITTED = CrashPoint("submitted", "before", f"{_WAITING}.open")
WAITING = CrashPoint("waiting", "after", f"{_WAITING}.observe")
TERMINAL_STATE_SEEN = CrashPoint("terminal state seen", "before", f"{_WAITING}.conclude")
BEFORE_FAILED_DELETE = CrashPoint(
    "failed, about to end it", "before", f"{_API}.delete_trainjob", f"{_WAITING}.conclude", fails_first=True
)
AFTER_FAILED_DELETE = CrashPoint(
    "failed, ended", "after", f"{_API}.delete_trainjob", f"{_WAITING}.conclude", fails_first=True
)
OUTCOME_KNOWN = CrashPoint("outcome known", "after", f"{_WAITING}.conclude")

CREATION_POINTS = (BEFORE_LIST, AFTER_LIST, BEFORE_CREATE, CREATE_SENT, CREATE_EXECUTED, AFTER_CREATE)
"""From the list request to the response of the creation; the same code in every actor that creates."""
FIRST_ACTOR_POINTS = (CREATE_SENT, CREATE_EXECUTED, AFTER_CREATE)
"""Points that only the first actor reaches, because the second one adopts the TrainJob."""
ADOPTION_POINTS = (BEFORE_ADOPT, AFTER_ADOPT)
"""Points of an actor that adopts the TrainJob that another actor has created."""
WAIT_POINTS = (WAITING, TERMINAL_STATE_SEEN, BEFORE_FAILED_DELETE, AFTER_FAILED_DELETE, OUTCOME_KNOWN)
"""From the start of waiting to the outcome, for actors that wait in their own process."""
RESUBMISSION_POINTS = (OUTCOME_KNOWN, *CREATION_POINTS, SUBMITTED)
"""From the end of an interrupted TrainJob to the wait for the next attempt."""
QUICK_POINTS = (CREATE_SENT, OUTCOME_KNOWN)
"""Points at which `make test` kills a process that has no other one beside it; `make slow` covers all points."""
# "Persisted" is a point of Airflow's workers only: the core and KFP's launcher keep no state outside the cluster.
CORE_POINTS = (
    *CREATION_POINTS,
    *ADOPTION_POINTS,
    SUBMITTED,
    *WAIT_POINTS,
    CrashPoint("outcome reported", "after", "core_actor:write_report"),
    CrashPoint("about to clean up", "before", "core_actor:clean_up"),
    CrashPoint("cleaned up", "after", "core_actor:clean_up"),
)
LAUNCHER_POINTS = (
    *CREATION_POINTS,
    *ADOPTION_POINTS,
    SUBMITTED,
    *WAIT_POINTS,
    CrashPoint("outcome reported", "after", "kfp.dsl.executor:Executor.write_executor_output"),
)
BEFORE_PAUSE = CrashPoint(
    "failed, another attempt follows",
    "before",
    "trainjob_kfp.termination:Terminator.pause",
    fails_first=True,
)
# A launcher that receives SIGTERM cleans up immediately.


def kill_parameters(points: Iterable[CrashPoint], quick: Collection[CrashPoint] = QUICK_POINTS) -> list[Any]:
    """Return test parameters for these points; those that are not quick are slow."""
    import pytest

    return [pytest.param(point, marks=[] if point in quick else [pytest.mark.slow], id=point.slug) for point in points]


_DELETION = "trainjob_kfp.deletion:DeletionRequest.send"
BEFORE_CLEANUP = CrashPoint("about to clean up", "before", _DELETION)
TERMINATION_POINTS = (
    BEFORE_CLEANUP,
    CrashPoint("clean-up sent", "before", _GET_RESPONSE, within=_DELETION),
    CrashPoint("cleaned up", "after", f"{_API}.delete_trainjob", within=_DELETION),
)
_OPERATOR = "trainjob_airflow.operators.base:StepOperator"
_TRIGGER = "trainjob_airflow.triggers.trainjob:TrainJobTrigger"
# A deferred task does not wait in a process of its own: these are the points before and after the deferral.
DEFERRED_TASK_POINTS = (
    *CREATION_POINTS,
    CrashPoint("persisted", "after", "trainjob_airflow.operators.submission:_store_reference"),
    CrashPoint("about to be deferred", "before", f"{_OPERATOR}._defer"),
    CrashPoint("back from the triggerer", "before", f"{_OPERATOR}.execute_complete"),
    CrashPoint("outcome reported", "after", "airflow.sdk.execution_time.task_runner:_push_xcom_if_needed"),
)
WORKER_TASK_POINTS = WAIT_POINTS
# Points after which a first try, whose supervisor is dead, continues beside the second try.
ZOMBIE_POINTS = (BEFORE_CREATE, AFTER_CREATE, WAITING, OUTCOME_KNOWN)
# The triggerer creates nothing. It cleans up only if a container has failed or a user has decided so.
TRIGGER_POINTS = (
    CrashPoint("trigger started", "before", f"{_TRIGGER}._wait"),
    *WAIT_POINTS,
    CrashPoint("outcome reported", "after", f"{_TRIGGER}.run"),
)
# A triggerer that missed its heartbeats finds that another triggerer has its triggers.
TRIGGER_REASSIGNED = CrashPoint("handed to another triggerer", "after", "trainjob_airflow.termination:was_handed_over")
# A user has marked the task failed, so its TrainJob has to be deleted.
KILLED_TASK_POINTS = (
    CrashPoint("about to clean up", "before", f"{_API}.delete_trainjob", within=f"{_OPERATOR}._apply_kill_action"),
    CrashPoint("cleaned up", "after", f"{_API}.delete_trainjob", within=f"{_OPERATOR}._apply_kill_action"),
)
KILLED_TRIGGER_POINTS = (
    CrashPoint("about to clean up", "before", f"{_API}.delete_trainjob", within=f"{_TRIGGER}._apply_kill_action"),
    CrashPoint("cleaned up", "after", f"{_API}.delete_trainjob", within=f"{_TRIGGER}._apply_kill_action"),
)

# Points between the creation of a TrainJob and the wait for it, for tests that raise errors there.
PERSISTED = CrashPoint("persisted", "after", "trainjob_airflow.operators.submission:_store_reference")
BEFORE_LINKS = CrashPoint("before its links", "before", f"{_OPERATOR}._set_links")
BEFORE_WAIT = CrashPoint("before its wait", "before", f"{_OPERATOR}._follow")
BEFORE_DEFERRAL = CrashPoint("about to be deferred", "before", f"{_OPERATOR}._defer")
TRIGGER_STARTED = CrashPoint("trigger started", "before", f"{_TRIGGER}._wait")
BEFORE_TRIGGER_CONNECTS = CrashPoint("trigger connects", "before", f"{_TRIGGER}._cluster")
BEFORE_TASK_LOG = CrashPoint("before its progress", "before", "trainjob_airflow.task_progress:TaskProgress.__init__")

_trap_folder: contextvars.ContextVar[Path | None] = contextvars.ContextVar("crash_folder", default=None)
_running_functions: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("crash_within", default=frozenset())


def arm_trap(folder: Path, point: CrashPoint, action: str = "die") -> None:
    """Arm a trap for one point.

    Args:
        folder: the trap's folder; the first process that uses it and reaches the point is trapped.
        point: the point at which the trap triggers.
        action: `die`: the process gets SIGKILL. `hold`: it waits there until [release][]. `pass`: the point is only
            recorded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "armed").write_text(f"{point.name}\n{action}")


def reached_by(folder: Path) -> int | None:
    """Return the ID of the process that reached the point; None if no process has reached it."""
    try:
        return int((folder / "reached").read_text())
    except FileNotFoundError:
        return None


def release(folder: Path) -> None:
    """Let the process that is held continue."""
    (folder / "go_on").touch()


def use_trap_folder(folder: Path | None) -> None:
    """Use the trap of this folder in the current context."""
    _trap_folder.set(folder)


def install_traps(points: Iterable[CrashPoint], folder: Path | None = None) -> None:
    """Wrap the functions of these points in this process.

    Args:
        points: the points to watch.
        folder: the trap's folder; None if each context has its own, see [use_trap_folder][].
    """
    for point in points:
        if point.within:
            _wrap(point.within, functools.partial(_track_calls, name=point.within))
        _wrap(point.function, functools.partial(_trap_calls, point=point, folder=folder))


@contextlib.contextmanager
def raise_at(point: CrashPoint, error: Exception) -> Iterator[None]:
    """Raise an error once at a point in this process, and restore the function at the end.

    Args:
        point: a point without `within`.
        error: the exception to raise there.
    """
    module, _, path = point.function.partition(":")
    *parents, name = path.split(".")
    owner = functools.reduce(getattr, parents, importlib.import_module(module))
    original, pending = getattr(owner, name), [error]

    def fail(side: str) -> None:
        if side == point.side and pending:
            raise pending.pop()

    @functools.wraps(original)
    def failed(*arguments: Any, **more: Any) -> Any:
        fail("before")
        returned = original(*arguments, **more)
        fail("after")
        return returned

    @functools.wraps(original)
    async def failed_async(*arguments: Any, **more: Any) -> Any:
        fail("before")
        returned = await original(*arguments, **more)
        fail("after")
        return returned

    setattr(owner, name, failed_async if inspect.iscoroutinefunction(original) else failed)
    try:
        yield
        assert not pending, f"{point.name} was not reached"
    finally:
        setattr(owner, name, original)


def _wrap(function: str, decorator: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module, _, path = function.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, decorator(getattr(owner, name)))


def _track_calls(work: Callable[..., Any], name: str) -> Callable[..., Any]:
    @contextlib.contextmanager
    def inside() -> Iterator[None]:
        token = _running_functions.set(_running_functions.get() | {name})
        try:
            yield
        finally:
            _running_functions.reset(token)

    @functools.wraps(work)
    def marked(*arguments: Any, **more: Any) -> Any:
        with inside():
            return work(*arguments, **more)

    @functools.wraps(work)
    async def marked_async(*arguments: Any, **more: Any) -> Any:
        with inside():
            return await work(*arguments, **more)

    return marked_async if inspect.iscoroutinefunction(work) else marked


def _trap_calls(work: Callable[..., Any], point: CrashPoint, folder: Path | None) -> Callable[..., Any]:
    def trap_at(side: str) -> Path | None:
        """Return the folder whose release to wait for; None to continue immediately."""
        own_folder = folder or _trap_folder.get()
        is_reached = point.side == side and (not point.within or point.within in _running_functions.get())
        return own_folder if own_folder and is_reached and _trigger_trap(own_folder, point) else None

    @functools.wraps(work)
    def trapped(*arguments: Any, **more: Any) -> Any:
        _wait_for_release(trap_at("before"))
        returned = work(*arguments, **more)
        _wait_for_release(trap_at("after"))
        return returned

    @functools.wraps(work)
    async def trapped_async(*arguments: Any, **more: Any) -> Any:
        await _wait_for_release_async(trap_at("before"))
        returned = await work(*arguments, **more)
        await _wait_for_release_async(trap_at("after"))
        return returned

    @functools.wraps(work)
    async def trapped_generator(*arguments: Any, **more: Any) -> Any:
        async for item in work(*arguments, **more):
            yield item
            await _wait_for_release_async(trap_at("after"))

    if inspect.isasyncgenfunction(work):
        return trapped_generator
    return trapped_async if inspect.iscoroutinefunction(work) else trapped


def _trigger_trap(folder: Path, point: CrashPoint) -> bool:
    """Return whether the process has to wait at this point.

    The trap triggers once. With `die`, the function kills the process and does not return.
    """
    try:
        name, action = (folder / "armed").read_text().splitlines()
    except FileNotFoundError:
        return False
    if name != point.name:
        return False
    pid_file = folder / f"{os.getpid()}"
    pid_file.write_text(str(os.getpid()))
    with contextlib.suppress(FileNotFoundError):
        (folder / "armed").unlink()  # another thread of this process, or another process, may have removed it first
        pid_file.rename(folder / "reached")
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return action == "hold"
    return False


def _wait_for_release(folder: Path | None) -> None:
    while folder and not (folder / "go_on").exists():
        time.sleep(0.02)


async def _wait_for_release_async(folder: Path | None) -> None:
    while folder and not (folder / "go_on").exists():  # noqa: ASYNC110 - another process creates it
        await asyncio.sleep(0.02)

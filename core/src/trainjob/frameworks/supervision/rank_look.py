"""A look at the processes of one rank: their states and their stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.frameworks.supervision.processes import Process, list_descendants, read_process
from trainjob.frameworks.supervision.stacks import Stacks, request_stacks
from trainjob.heartbeats import Heartbeat
from trainjob.status.watchdog import BLOCKED, GONE, RUNNING, STOPPED, RankState

__all__ = ["RankLook", "describe_rank", "look_at"]

_MOVED_BYTES = 1 << 20  # read or written between two looks: a save, for example, and no hang
_BUSY = 30.0  # percent of one CPU that processes use which compute; pollers of queues and stores use less
_MAX_CHILDREN = 64
_MAX_WORKERS = 4  # that a text names
_IDLE_WORKER = "_worker_loop "  # place of a data loader's worker without work


@dataclass(frozen=True)
class RankLook:
    """Observation of a rank's processes at one moment.

    Attributes:
        process: the process of the rank; None if it does not exist.
        children: the processes that it has started, and that those have.
        stacks: stacks of these processes by process ID, of those that write them.
        has_handler: whether the process of the rank writes its stacks at a signal.
    """

    process: Process | None
    children: Sequence[Process]
    stacks: Mapping[int, Stacks]
    has_handler: bool

    @property
    def is_incomplete(self) -> bool:
        """Whether the process did not write its stacks in time, because the machine is busy."""
        runs = self.process is not None and not (self.process.is_stopped or self.process.is_blocked)
        return self.has_handler and runs and not self.main.main

    @property
    def has_debugger(self) -> bool:
        """Whether a debugger is attached to one of the processes."""
        return any(process.has_debugger for process in self._all)

    @property
    def has_stopped(self) -> bool:
        """Whether the process is stopped by a signal, or one of a rank that writes no stacks."""
        return any(process.is_stopped for process in (self._all if not self.stacks else self._all[:1]))

    @property
    def main(self) -> Stacks:
        """Stacks of the rank's process."""
        return self.stacks.get(self.process.pid, Stacks()) if self.process else Stacks()

    def measure_cpu_use(self, earlier: RankLook, seconds: float) -> float:
        """Return the percentage of one CPU that its processes have used since an earlier look.

        Args:
            earlier: the earlier look.
            seconds: time between the two.
        """
        return max(0.0, 100 * (self._cpu_seconds - earlier._cpu_seconds) / seconds)

    def differs_from(self, earlier: RankLook, seconds: float) -> bool:
        """Return whether the rank has done something in the seconds since an earlier look.

        That is another stack, a file that grows, or a computation. GPU libraries also use a whole CPU while they wait
        in a collective operation, so a computation does not count there.
        """
        if self.process is None or earlier.process is None:
            return False
        if self._moved_bytes - earlier._moved_bytes > _MOVED_BYTES:
            return True
        common = self.stacks.keys() & earlier.stacks.keys()
        if any(self.stacks[pid].main != earlier.stacks[pid].main for pid in common):
            return True
        computes = self.process.is_running or self.measure_cpu_use(earlier, seconds) > _BUSY
        return computes and not self.main.collective

    @property
    def _moved_bytes(self) -> int:
        return sum(process.moved_bytes for process in self._all)

    @property
    def _cpu_seconds(self) -> float:
        return sum(process.cpu_seconds for process in self._all)

    @property
    def _all(self) -> Sequence[Process]:
        return [self.process, *self.children] if self.process else []


def look_at(rank: Heartbeat, folder: Path) -> RankLook:
    """Return what a rank's processes do now.

    Args:
        rank: the rank's heartbeat.
        folder: folder with the heartbeats, to which the processes write their stacks.
    """
    process = read_process(rank.pid)
    if process is None or process.has_ended:
        return RankLook(None, (), {}, has_handler=False)
    children = [child for child in list_descendants(rank.pid) if not child.has_ended][:_MAX_CHILDREN]
    path = folder / rank.stacks_name
    found = {child.pid: request_stacks(child, path) for child in children}
    found[process.pid] = request_stacks(process, path, rank.main_thread)
    written = {pid: stacks for pid, stacks in found.items() if stacks.main}
    return RankLook(process, children, written, has_handler=rank.main_thread != 0)


def describe_rank(rank: Heartbeat, looks: Sequence[RankLook], now: float) -> RankState:
    """Return the state of a rank that has made no step, from several looks."""
    last = looks[-1]
    process, stacks = last.process, last.main
    place = stacks.place
    if process and not place and process.waits_in:
        place = f"{process.name}, which waits in {process.waits_in} of the kernel"
    return RankState(
        rank=rank.rank,
        step=rank.step,
        seconds=round(now - rank.time, 1),
        state=_find_state(looks),
        place=place,
        collective=stacks.collective,
        workers=tuple(_list_workers(last))[:_MAX_WORKERS],
    )


def _find_state(looks: Sequence[RankLook]) -> str:
    last = looks[-1]
    if last.process is None:
        return GONE
    if last.has_stopped:
        return STOPPED
    is_blocked = all(look.process and look.process.is_blocked for look in looks)
    return BLOCKED if is_blocked else RUNNING


def _list_workers(look: RankLook) -> Iterator[str]:
    for child in look.children:
        place = look.stacks[child.pid].place if child.pid in look.stacks else ""
        if child.is_stopped:
            yield "stopped by a signal"
        elif place and not place.startswith(_IDLE_WORKER):
            yield place

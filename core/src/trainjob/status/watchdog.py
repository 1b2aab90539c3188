"""Reports of watchdogs in the log, one for each pod, and what they say together about the training.

A pod sees its own ranks only. A rank that waits for the others in a collective operation looks like one that hangs, so
the rank that hangs is found by comparing the reports of all pods.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PREFIX = "trainjob watchdog: "
"""Start of a line of the log with a report."""
STEPS_PREFIX = "trainjob steps: "
"""Start of a line with the last steps of a pod's ranks, which pods write at intervals for programs."""
WARNING_PREFIX = "watchdog: warning: "
"""Start of a line with something that needs no action at once."""
_END = re.compile(
    r"watchdog: rank (\d{1,7}) (?:was ended by (?:SIG|signal )(\w{1,9})|has ended) "
    r"(?:after step (\d{1,18})|before its first step)"
)
STOPPED, GONE, BLOCKED, RUNNING = "stopped", "gone", "blocked", "running"
_ENDED_STATES = (STOPPED, GONE, BLOCKED)
_UNREADABLE = (LookupError, TypeError, ValueError, OverflowError)  # of a line that the training may have written
_NO_MACHINES: Mapping[int, str] = {}
_SIGNALS = {each.name: each.value for each in signal.Signals}
_MAX_NAMED = 4  # ranks that a text names one by one


@dataclass(frozen=True)
class RankState:
    """State of one rank that has made no step for long.

    Attributes:
        rank: its rank; None for a training whose processes report no ranks, only progress in the log.
        step: last step that it has completed; None before the first one.
        seconds: seconds since its last sign of life.
        state: state of its process: `running`, `stopped` (SIGSTOP), `blocked` (in the kernel, such as on a disk that
            does not answer) or `gone`.
        place: function and line in which its main thread is, or what is known otherwise; it may be empty.
        collective: name of the collective operation in which it waits for other ranks; empty if it is in none.
        workers: places of its child processes, such as workers of a data loader.
    """

    rank: int | None
    step: int | None
    seconds: float
    state: str = RUNNING
    place: str = ""
    collective: str = ""
    workers: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankState:
        """Return the state from JSON values.

        Raises:
            LookupError, TypeError, ValueError, OverflowError: a value is missing, or has another type.
        """
        numbers = _to_int(values["rank"]), _to_int(values["step"]), float(values["seconds"])
        state, place, collective = (str(values[name]) for name in ("state", "place", "collective"))
        return cls(*numbers, state, place, collective, tuple(map(str, values["workers"])))

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits for other ranks."""
        return bool(self.collective) and self.state == RUNNING

    def describe(self) -> str:
        """Return where it is, such as `it is in train (train.py:12)`."""
        if self.state == STOPPED:
            return "its process is stopped by a signal (SIGSTOP)"
        if self.state == GONE:
            return "its process does not exist any more"
        workers = f" (worker: {'; '.join(self.workers)})" if self.workers else ""
        if self.state == BLOCKED:
            return f"its process is blocked in the kernel{f', in {self.place}' if self.place else ''}{workers}"
        return f"it is in {self.place}{workers}" if self.place else f"its place is not known{workers}"


_Located = tuple[RankState, int]
"""A rank, and the number of its node in the training."""


@dataclass(frozen=True)
class WatchdogReport:
    """Report of one pod's watchdog.

    Attributes:
        node: number of the pod's node in the training.
        world_size: number of ranks of the training.
        ranks: the pod's ranks that have made no step for long; none when they make steps again.
        is_alarm: whether the training hangs, as far as this pod sees; otherwise its ranks wait for others.
        action: what the watchdog does after an alarm: `report`, `restart` or `fail`.
    """

    node: int
    world_size: int
    ranks: tuple[RankState, ...]
    is_alarm: bool
    action: str

    def to_line(self) -> str:
        """Return the line of the log."""
        return PREFIX + json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> WatchdogReport | None:
        """Return the report in a line of the log; None if it has none."""
        _, found, text = line.partition(PREFIX)
        if not found:
            return None
        try:
            values = json.loads(text)
            ranks = tuple(map(RankState.from_dict, values["ranks"]))
            counts = int(values["node"]), int(values["world_size"])
            return cls(*counts, ranks, bool(values["is_alarm"]), str(values["action"]))
        except _UNREADABLE:
            return None


@dataclass(frozen=True)
class RankSteps:
    """Last steps of a training's ranks at one moment.

    Attributes:
        slowest: rank that has completed the fewest steps; None for a training whose processes report no ranks.
        slowest_step: last step that it has completed.
        fastest: rank that has completed the most steps.
        fastest_step: last step that it has completed.
        seconds: seconds since the last sign of life of any rank.
    """

    slowest: int | None
    slowest_step: int
    fastest: int | None
    fastest_step: int
    seconds: float

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RankSteps:
        """Return the steps from JSON values.

        Raises:
            LookupError, TypeError, ValueError, OverflowError: a value is missing, or has another type.
        """
        slowest = _to_int(values["slowest"]), int(values["slowest_step"])
        fastest = _to_int(values["fastest"]), int(values["fastest_step"])
        return cls(*slowest, *fastest, float(values["seconds"]))

    def __str__(self) -> str:
        last = f"active {_format_seconds(self.seconds)} ago"
        if self.slowest_step == self.fastest_step:
            return last
        slowest = f"rank {self.slowest} at step {self.slowest_step}"
        return f"{slowest} and rank {self.fastest} at step {self.fastest_step}, {last}"


@dataclass(frozen=True)
class StepReport:
    """Steps of the ranks of one pod.

    Attributes:
        node: number of the pod's node in the training.
        moment: number of the interval that begins now by the clock, at whose start all pods report.
        steps: the steps.
    """

    node: int
    moment: int
    steps: RankSteps

    def to_line(self) -> str:
        """Return the line of the log."""
        return STEPS_PREFIX + json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> StepReport | None:
        """Return the report in a line of the log; None if it has none."""
        if not line.startswith(STEPS_PREFIX):
            return None
        try:
            values = json.loads(line.removeprefix(STEPS_PREFIX))
            return cls(int(values["node"]), int(values["moment"]), RankSteps.from_dict(values["steps"]))
        except _UNREADABLE:
            return None


@dataclass(frozen=True)
class RankEnd:
    """End of a rank's process that was not its own decision.

    Attributes:
        rank: its rank.
        signal: number of the signal that has ended it; None if it is not known.
        step: last step that it has completed; None before the first one.
    """

    rank: int
    signal: int | None
    step: int | None

    def to_line(self) -> str:
        """Return the line of the log."""
        end = "has ended" if self.signal is None else f"was ended by {name_signal(self.signal)}"
        position = "before its first step" if self.step is None else f"after step {self.step}"
        return f"watchdog: rank {self.rank} {end} {position}"

    @classmethod
    def from_line(cls, line: str) -> RankEnd | None:
        """Return the end in a line of the log; None if it has none."""
        if not (found := _END.fullmatch(line)):
            return None
        rank, name, step = found.groups()
        number = int(name) if name and name.isdecimal() else _SIGNALS.get(f"SIG{name}")
        return cls(int(rank), number, None if step is None else int(step))


def name_signal(number: int) -> str:
    """Return the name of a signal, or its number if it has no name."""
    return next((name for name, each in _SIGNALS.items() if each == number), f"signal {number}")


class StepReports:
    """Steps of all ranks of a training, of which each pod reports its own.

    Only reports of the same moment are compared. Those of a moment are complete if they are of the same pods as before,
    or when those of the next one begin.

    Attributes:
        newest: steps at the last moment with complete reports; None before the first one.
    """

    def __init__(self) -> None:
        """Create a record without reports."""
        self.newest: RankSteps | None = None
        self._moment, self._pods = 0, dict[int, RankSteps]()
        self._expected: Collection[int] = ()

    def add(self, report: StepReport) -> bool:
        """Add the report of one pod, and return whether there are newer steps of all.

        A report of an earlier moment is left out.
        """
        before = self.newest
        if report.moment > self._moment:
            self._combine()
            self._moment, self._pods = report.moment, {}
        if report.moment == self._moment:
            self._pods[report.node] = report.steps
            if self._pods.keys() >= set(self._expected):
                self._combine()
        return self.newest is not before

    def _combine(self) -> None:
        if self._pods:
            pods, self._expected = self._pods.values(), list(self._pods)
            slowest, fastest = min(pods, key=lambda pod: pod.slowest_step), max(pods, key=lambda pod: pod.fastest_step)
            steps = (slowest.slowest, slowest.slowest_step, fastest.fastest, fastest.fastest_step)
            self.newest = RankSteps(*steps, min(pod.seconds for pod in pods))


def _to_int(value: Any) -> int | None:
    return None if value is None else int(value)


def is_hang(reports: Sequence[WatchdogReport]) -> bool:
    """Return whether a training hangs by the last report of each pod.

    It does if one raises the alarm, or if all ranks wait.
    """
    ranks = sum(len(report.ranks) for report in reports)
    return any(report.is_alarm for report in reports) or any(ranks >= report.world_size for report in reports)


def describe_hang(reports: Iterable[WatchdogReport], machines: Mapping[int, str] = _NO_MACHINES) -> str:
    """Return which rank of a training hangs and where, from the last report of each pod.

    For example: `rank 3 of 16 on node-1 (gpu-17) has made no step for 9 min since step 41: it is in
    DataLoader.__next__; 15 ranks wait in all_reduce`. The text is empty without a report.

    Args:
        reports: the reports.
        machines: names of the cluster's nodes on which the pods ran, by the number of the training's node.
    """
    located = _locate_ranks(reports)
    if not located:
        return ""
    total = max([len(located), *(report.world_size for report in reports), *(_count_to(rank) for rank, _ in located)])
    hanging = _find_hanging(located)
    others = [rank for rank, _ in located if all(rank is not each for each, _ in hanging)]
    waits = Counter(rank.collective for rank in others if rank.is_waiting)
    waiting = [f"{_count_ranks(count)} in {name}" for name, count in waits.most_common()]
    if not hanging:
        longest = max(rank.seconds for rank, _ in located)
        return f"no rank of {total} has made a step for {_format_seconds(longest)}: {', '.join(waiting)}"
    texts = [_describe_rank(rank, node, total, machines.get(node, "")) for rank, node in hanging[:_MAX_NAMED]]
    if len(hanging) > _MAX_NAMED:
        texts.append(f"so have {len(hanging) - _MAX_NAMED} more ranks")
    return "; ".join([*texts, *waiting])


def find_hanging_nodes(reports: Iterable[WatchdogReport]) -> set[int]:
    """Return the numbers of the nodes with a rank that hangs, unless ranks of all nodes do.

    Args:
        reports: the last report of each pod.
    """
    located = _locate_ranks(reports)
    hanging, known = ({node for _, node in ranks} for ranks in (_find_hanging(located), located))
    return hanging if len(known) == 1 or hanging != known else set()


def describe_wait(report: WatchdogReport) -> str:
    """Return how long the ranks of one pod have waited for others."""
    names = ", ".join(sorted({rank.collective for rank in report.ranks}))
    longest = max(rank.seconds for rank in report.ranks)
    return f"{_count_ranks(len(report.ranks))} in {names} for {_format_seconds(longest)}; others may still work"


def _locate_ranks(reports: Iterable[WatchdogReport]) -> list[_Located]:
    return [(rank, report.node) for report in reports for rank in report.ranks]


def _find_hanging(located: Sequence[_Located]) -> list[_Located]:
    """Return the ranks for which the others wait; empty if none differs.

    These are ranks whose process does not run, else those that wait in no collective operation, else those in another
    one than most. Of several, those with the lowest step.
    """
    ended = [each for each in located if each[0].state in _ENDED_STATES]
    outside = [each for each in located if not each[0].is_waiting]
    names = Counter(rank.collective for rank, _ in located).most_common()
    apart = [each for each in located if each[0].collective != names[0][0]] if len(names) > 1 else []
    found = ended or outside or apart
    lowest = min((_step_number(rank) for rank, _ in found), default=0)
    return [each for each in found if _step_number(each[0]) == lowest]


def _count_to(rank: RankState) -> int:
    return 0 if rank.rank is None else rank.rank + 1


def _step_number(rank: RankState) -> int:
    return -1 if rank.step is None else rank.step


def _describe_rank(rank: RankState, node: int, total: int, machine: str) -> str:
    subject = f"node-{node}" if rank.rank is None else f"rank {rank.rank} of {total} on node-{node}"
    subject = f"{subject} ({machine})" if machine else subject
    since = "and none before" if rank.step is None else f"since step {rank.step}"
    return f"{subject} has made no step for {_format_seconds(rank.seconds)} {since}: {rank.describe()}"


def _count_ranks(count: int) -> str:
    return "1 rank waits" if count == 1 else f"{count} ranks wait"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

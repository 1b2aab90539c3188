"""Watchdog of one pod: it finds ranks that hang, reports where they are, and may end the training."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainjob.errors import DIVERGED, HUNG
from trainjob.frameworks.supervision.gpu_use import GpuUse
from trainjob.frameworks.supervision.output_reader import OutputReader
from trainjob.frameworks.supervision.pace import Pace
from trainjob.frameworks.supervision.process_ending import end_processes
from trainjob.frameworks.supervision.rank_look import RankLook, describe_rank, look_at
from trainjob.heartbeats import Heartbeat, read_heartbeats
from trainjob.status.watchdog import (
    WARNING_PREFIX,
    RankSteps,
    StepReport,
    WatchdogReport,
    describe_hang,
    describe_wait,
)

__all__ = ["Watchdog", "WatchdogSettings"]

# Without a limit in the request: so many median steps, and at least so many seconds. The second value is for a training
# that has made too few steps for a median; the first ones often compile kernels.
_MEDIAN_STEPS, _MIN_SILENCE, _SILENCE_OF_FIRST_STEPS = 20.0, 300.0, 1800.0
_SAMPLES = 3  # looks at a process in which nothing may change if it hangs
_LONGEST_GAP = 10.0  # seconds between two of them
_MAX_INTERVAL = 5.0  # seconds between two looks at the heartbeats
_REPORT_INTERVAL = 30.0  # seconds between two lines with the steps of the ranks, and two looks at the GPUs
_ACTIVE_FACTOR = 10.0  # an active process that makes no step hangs after so many times the limit
_LONGEST_SETTLING = 30.0  # seconds before an action, in which the other pods report, too
_MAX_FRAMES = 40  # of each stack in the log


@dataclass(frozen=True)
class WatchdogSettings:
    """Settings of a watchdog, as its program in the pod gets them.

    `trainjob.spec.Watchdog` describes them.

    Attributes:
        action: `report`, `restart` or `fail`.
        first_step_within: seconds until the first step; None means no limit.
        silence: seconds without a sign of life; None means a limit that follows from the training's own pace.
        loss_factor: the training diverges with a loss of so many times the best one; None means no such limit.
        slow_factor: a warning follows if steps take so many times as long as before; None means no warning.
        min_gpu_percent: a warning follows if the GPUs compute for less of the time; None means no warning.
    """

    action: str
    first_step_within: float | None = None
    silence: float | None = None
    loss_factor: float | None = None
    slow_factor: float | None = None
    min_gpu_percent: float | None = None

    def to_json(self) -> str:
        """Return the settings as one line of JSON."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(given, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> WatchdogSettings:
        """Return the settings from the text of [to_json][].

        Raises:
            ValueError: the text is not JSON.
            TypeError: the text is JSON of another form.
        """
        return cls(**json.loads(text))


class Watchdog:
    """Thread that reads the heartbeats of a pod's ranks.

    It looks at their processes only if they are silent.
    """

    def __init__(
        self,
        settings: WatchdogSettings,
        folder: Path,
        node: int,
        print_line: Callable[[str], None],
        training: int,
        is_ending: Callable[[], bool],
        before_end: Callable[[], None],
    ) -> None:
        """Start to watch a training.

        Args:
            settings: limits and action.
            folder: folder of the heartbeats.
            node: number of the pod's node.
            print_line: writes a line to the log.
            training: process ID of the training's first process.
            is_ending: returns whether the training was requested to end, after which its processes may be gone.
            before_end: called before the watchdog ends the training.
        """
        self._verdict = ""
        self._settings, self._folder, self._node = settings, folder, node
        self._print, self._training, self._is_ending = print_line, training, is_ending
        self._before_end = before_end
        self._output = OutputReader(settings.loss_factor)
        self._stopped = threading.Event()
        self._pace, self._warned_of = Pace(), set[str]()
        self._gpus: GpuUse | None = None  # from the first step on
        self._started_at = self._alive_at = time.monotonic()  # no silence counts from before the second one
        self._examine_after = 0.0  # seconds of silence
        self._reported: WatchdogReport | None = None
        least = [each for each in (settings.silence, settings.first_step_within, _MAX_INTERVAL * 8) if each is not None]
        self._interval = min(least) / 8
        self._report_interval = min(_REPORT_INTERVAL, *least)
        self._moment = self._find_moment()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def put(self, chunk: bytes) -> None:
        """Give a chunk of the training's output to the watchdog."""
        if self._node == 0:  # whose output has the progress
            self._output.put(chunk)

    def stop(self) -> str:
        """End the watch, and return why the watchdog has ended the training; empty if it has not.

        The text begins with [trainjob.errors.HUNG][] or [trainjob.errors.DIVERGED][].
        """
        self._stopped.set()
        self._thread.join()
        return self._verdict

    def _watch(self) -> None:
        try:
            while self._wait(min(self._interval, self._report_interval - time.time() % self._report_interval)):
                self._look(time.monotonic())
        except Exception as error:  # noqa: BLE001 - the training must not notice
            self._print(f"watchdog: the training continues unwatched: {error!r}")

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether to continue the watch."""
        begin = time.monotonic()
        is_stopped = self._stopped.wait(seconds)
        if time.monotonic() - begin > 2 * seconds + 1.0:  # this process itself was stopped, and so were the others
            self._alive_at = time.monotonic()
        return not is_stopped

    def _look(self, now: float) -> None:
        if self._verdict:
            return  # it was ended
        if divergence := self._output.losses.divergence:
            self._end_diverged(divergence)
        ranks = self._find_ranks()
        self._report_pace(ranks, now)
        silent = [rank for rank in ranks if self._is_silent(rank, now)]
        if not silent:
            self._examine_after = 0.0
            # A rank that has ended, for example by an error because of another one, makes no steps.
            reported = [state.rank for state in self._reported.ranks] if self._reported else []
            if self._reported and any(rank.rank in reported for rank in ranks) and not self._stopped.is_set():
                self._print(replace(self._reported, ranks=(), is_alarm=False).to_line())
                self._print("watchdog: the training makes steps again")
                self._reported = None
            return
        is_known = self._reported is not None and self._reported.is_alarm
        if not is_known and max(now - self._alive_since(rank) for rank in silent) >= self._examine_after:
            self._examine(ranks, silent, now)

    def _find_ranks(self) -> list[Heartbeat]:
        """Return the last signs of life.

        Ranks of the first node that report no steps have those of its log. If none of its processes ever reports
        itself, the training's first one is a rank.
        """
        known, output = list(read_heartbeats(self._folder)), self._output
        if any(rank.step is not None for rank in known):
            output.is_needed = False
        if not output.is_needed:
            return known
        if self._node:  # only the first node writes steps to its log, and may work while the others wait
            return [rank for rank in known if rank.reports_steps]
        known = known or [Heartbeat(None, 1, self._training, 0, None, self._started_at)]
        if output.step is not None:
            return [replace(rank, step=output.step, time=max(rank.time, output.step_at)) for rank in known]
        return [
            replace(rank, time=max(rank.time, output.written_at)) if self._counts_output(rank) else rank
            for rank in known
        ]

    def _counts_output(self, rank: Heartbeat) -> bool:
        """Return whether the lines of the log are the only signs of life of a training."""
        has_limit = self._settings.silence is not None and self._settings.first_step_within is None
        return rank.rank is None and has_limit

    def _report_pace(self, ranks: Sequence[Heartbeat], now: float) -> None:
        """Write the steps and warnings at the start of each interval by the clock, as all pods do."""
        stepped = sorted((rank.step, rank.rank) for rank in ranks if rank.step is not None)
        moment, before = self._find_moment(), self._moment
        self._moment = moment
        if not stepped:
            return
        (least, slowest), (most, fastest) = stepped[0], stepped[-1]
        self._pace.observe(most, now)
        if moment == before:
            return
        steps = RankSteps(slowest, least, fastest, most, round(now - max(rank.time for rank in ranks), 1))
        self._print(StepReport(self._node, moment, steps).to_line())
        if self._settings.slow_factor is not None and self._node == 0:  # the others wait for each other
            self._warn("pace", self._pace.describe_slowness(self._settings.slow_factor))
        if self._settings.min_gpu_percent is not None:
            self._gpus = self._gpus or GpuUse(self._report_interval)
            self._warn("GPU use", self._gpus.describe_idleness(self._settings.min_gpu_percent))

    def _find_moment(self) -> int:
        return int(time.time() // self._report_interval)

    def _warn(self, subject: str, text: str) -> None:
        """Write the first warning about a subject; the text may be empty."""
        if text and subject not in self._warned_of:
            self._warned_of.add(subject)
            self._print(f"{WARNING_PREFIX}node-{self._node}: {text}")

    def _get_limit(self, rank: Heartbeat) -> float | None:
        if rank.step is None and not self._counts_output(rank):
            return self._settings.first_step_within
        if self._settings.silence is not None:
            return self._settings.silence
        median = self._pace.median
        return _SILENCE_OF_FIRST_STEPS if median is None else max(_MIN_SILENCE, _MEDIAN_STEPS * median)

    def _alive_since(self, rank: Heartbeat) -> float:
        return max(rank.time, self._alive_at)

    def _is_silent(self, rank: Heartbeat, now: float) -> bool:
        limit = self._get_limit(rank)
        return limit is not None and now - self._alive_since(rank) > limit

    def _examine(self, ranks: Sequence[Heartbeat], silent: Sequence[Heartbeat], now: float) -> None:
        """Look at the processes several times, and report the silent ranks unless one is active."""
        limit = min(limit for rank in silent if (limit := self._get_limit(rank)) is not None)
        longest = max(now - self._alive_since(rank) for rank in silent)
        self._examine_after = longest + limit / 2
        gap = min(_LONGEST_GAP, limit / 10)
        looks: list[list[RankLook]] = []  # of each rank
        for number in range(_SAMPLES):
            if number and not self._wait(gap):
                return
            looks.append([look_at(rank, self._folder) for rank in silent])
        if any(look.has_debugger for each in looks for look in each):
            self._alive_at = time.monotonic()
        if not self._are_silent(silent) or any(look.is_incomplete for each in looks for look in each):
            return
        by_rank = list(zip(*looks, strict=True))
        is_active = any(new.differs_from(old, gap) for of in by_rank for old, new in itertools.pairwise(of))
        may_have_no_steps = any(rank.step is None for rank in silent)
        if is_active and (may_have_no_steps or longest < _ACTIVE_FACTOR * limit):
            return
        now = time.monotonic()
        states = [describe_rank(rank, of, now) for rank, of in zip(silent, by_rank, strict=True)]
        world_size = max(rank.world_size for rank in ranks)
        is_alarm = len(silent) >= world_size or not all(state.is_waiting for state in states)
        if is_alarm or self._reported is None:
            if is_alarm:
                self._print_evidence(silent, by_rank, (_SAMPLES - 1) * gap)
            self._report(WatchdogReport(self._node, world_size, tuple(states), is_alarm, self._settings.action))
        if is_alarm and self._settings.action != "report":
            self._act(silent, limit)

    def _are_silent(self, ranks: Sequence[Heartbeat]) -> bool:
        """Return whether ranks that were silent have not given a sign of life since."""
        present = {rank.rank: rank for rank in self._find_ranks()}
        now = time.monotonic()
        return not (self._stopped.is_set() or self._is_ending()) and all(
            rank.rank in present and self._is_silent(present[rank.rank], now) for rank in ranks
        )

    def _print_evidence(self, ranks: Sequence[Heartbeat], looks: Sequence[Sequence[RankLook]], seconds: float) -> None:
        """Write the stacks of ranks, and their use of the CPUs from the first look to the last."""
        for rank, of in zip(ranks, looks, strict=True):
            name = f"node-{self._node}" if rank.rank is None else f"rank {rank.rank}"
            for pid, stacks in of[-1].stacks.items():
                source = name if pid == rank.pid else f"{name}, worker"
                for frame in stacks.main[:_MAX_FRAMES]:
                    self._print(f"watchdog: {source}: {frame.file}:{frame.line} in {frame.function}")
            use = of[-1].measure_cpu_use(of[0], seconds)
            self._print(f"watchdog: {name}: its processes used {use:.0f} % of one CPU for {seconds:.2g} s")
        if use_of_gpus := self._gpus and self._gpus.describe():
            self._print(f"watchdog: node-{self._node}: {use_of_gpus}")

    def _report(self, report: WatchdogReport) -> None:
        self._reported = report
        self._print(report.to_line())
        self._print(f"watchdog: {describe_hang([report]) if report.is_alarm else describe_wait(report)}")

    def _act(self, silent: Sequence[Heartbeat], limit: float) -> None:
        """End the training unless it makes steps again; until then, the other pods report, too."""
        if self._wait(min(_LONGEST_SETTLING, limit / 2)) and self._are_silent(silent):
            self._verdict = f"{HUNG}: {describe_hang([self._reported] if self._reported else [])}"
            self._before_end()
            end_processes(self._training)

    def _end_diverged(self, divergence: str) -> None:
        """End the training at once: a checkpoint that it saves now may replace a good one."""
        if self._settings.action == "report":
            self._warn("loss", divergence)
        else:
            self._verdict = f"{DIVERGED}: {divergence}"
            self._before_end()
            end_processes(self._training, grace=0)

"""Progress of a job as its log or its trainer reports it, and the parser for the log of a fetch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

from trainjob.status.nested_fields import get_mapping
from trainjob.status.watchdog import RankSteps

# A line can have any text. Each part of the pattern has a limit and can start at one place only, so that the time to
# match a line grows linearly with its length.
# The format of trainjob.programs is `fetch: 3/7 model.safetensors 12.3 MB (45 %)`, sometimes with more in the
# parentheses, and `fetch: 1.2 GB of 4.0 GB (30 %), 98.0 MB/s, 0 min 28 s left`.
_TRANSFERRED = re.compile(
    r"(?:fetch|export): .{1,4096} \((?P<percent>[0-9]{1,3}) %(?:, already there)?\)(?:, [^,()]{1,40}){0,2}"
)
_NUMBER = re.compile(r"[-+]?[0-9.]{1,32}(?:[eE][-+]?[0-9]{1,4})?")
_MAX_METRICS, _MAX_NAME_LENGTH = 128, 100


@dataclass(frozen=True)
class Progress:
    """Progress of a training or of a fetch at one moment.

    Attributes:
        step: optimizer steps done; 0 if none is done or the number is not known.
        total: optimizer steps in the whole training; None until it is known.
        epoch: current epoch, counted from 1; None if the log does not report it.
        epochs: epochs in the whole training; None until it is known.
        loss: newest training loss; None if it is not a finite number.
        unit: unit of `step` and `total`: `step` of a training, or `percent` of the bytes of a fetch or an export.
        metrics: newest values of the other metrics by the trainer's names, such as `learning_rate` or `eval_loss`;
            finite numbers only.
        reported_percent: percentage (0 to 100) that the trainer itself reports in the TrainJob's status; None if it
            reports none.
        remaining: seconds that the trainer estimates until its end, at the time of its report; None if it reports none.
        reported_at: time of this report (RFC 3339); empty if there is none.
        ranks: last steps of the slowest and the fastest rank; None if the training has no watchdog.
        carried: names of `loss` and metrics whose values are not known to be those of this step, because an earlier
            log line reported them. It is not stored.
    """

    step: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    unit: str = "step"
    metrics: Mapping[str, float] = field(default_factory=dict)
    reported_percent: float | None = None
    remaining: float | None = None
    reported_at: str = ""
    ranks: RankSteps | None = None
    carried: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def percent(self) -> float | None:
        """Percentage from 0 to 100, of the steps or as reported; None while neither is known."""
        return min(100.0, 100.0 * self.step / self.total) if self.total else self.reported_percent

    def value_at_step(self, name: str) -> float | None:
        """Return the loss or another metric if it is the value of this step; None otherwise."""
        if name in self.carried:
            return None
        return self.loss if name == "loss" else self.metrics.get(name)

    def to_dict(self) -> dict[str, Any]:
        """Return the progress as JSON values.

        `unit` is left out if it is `step`, and metrics and the trainer's report if there are none.
        """
        values = asdict(self)
        del values["carried"]
        if self.unit == "step":
            del values["unit"]
        optional = ("metrics", "reported_percent", "remaining", "reported_at", "ranks")
        return {name: value for name, value in values.items() if name not in optional or value not in ({}, None, "")}

    def with_report(self, reported: Progress | None) -> Progress:
        """Return this progress of a log with what the trainer itself has reported.

        The report alone has the estimated remaining time. Of steps, those are chosen of which there are more.
        """
        if reported is None:
            return self
        base = reported if reported.step > self.step else self
        new = frozenset(reported.metrics.keys() - self.metrics.keys())
        return replace(
            base,
            total=base.total or self.total or reported.total,
            metrics={**reported.metrics, **self.metrics},
            reported_percent=reported.reported_percent,
            remaining=reported.remaining,
            reported_at=reported.reported_at,
            ranks=self.ranks,
            carried=base.carried | new,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """Create a progress from the result of [to_dict][].

        The result may be of another release: unknown keys are ignored.
        """
        known = {name: values[name] for name in _STORED if name in values}
        metrics = {name: value for name, value in get_mapping(known, "metrics").items() if _is_finite(value)}
        ranks = RankSteps.from_dict(known["ranks"]) if known.get("ranks") else None
        return cls(**{**known, "metrics": metrics, "ranks": ranks})

    def __str__(self) -> str:
        if self.unit == "percent":
            return f"{self.step} % transferred"
        percent = "" if self.percent is None else f" ({self.percent:.0f} %)"
        parts = [f"step {self.step}/{self.total or '?'}{percent}"]
        if not self.step and not self.total and self.reported_percent is not None:
            parts = [f"{self.reported_percent:.0f} %"]
        if self.epoch is not None:
            parts = parts if self.step or self.total or self.reported_percent is not None else []
            parts.append(f"epoch {self.epoch}/{self.epochs or '?'}")
        named = {"loss": self.loss, "reward": self.metrics.get("reward")}
        parts += [f"{name} {value:.4g}" for name, value in named.items() if value is not None]
        parts += [] if self.remaining is None else [f"{_format_duration(self.remaining)} left"]
        return ", ".join([*parts, str(self.ranks)] if self.ranks and self.percent != 100.0 else parts)


_STORED = tuple(one.name for one in fields(Progress) if one.name != "carried")


def update_metrics(metrics: Mapping[str, float], new: Mapping[str, float | None]) -> dict[str, float]:
    """Return metrics with new values, in bounded size.

    At most 128 metrics with names of at most 100 characters are kept; further names are left out.

    Args:
        metrics: the metrics so far.
        new: new values by name; None removes a metric, because its newest value is not a finite number.
    """
    updated = {name: value for name, value in metrics.items() if new.get(name, value) is not None}
    for name, value in new.items():
        if value is not None and len(name) <= _MAX_NAME_LENGTH and (name in updated or len(updated) < _MAX_METRICS):
            updated[name] = value
    return updated


def _format_duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def parse_finite(text: str) -> float | None:
    """Return the number in a text; None if it is not a finite number in decimal notation."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def round_up_epoch(epoch: float, epochs: int | None) -> int:
    """Return the current epoch, counted from 1.

    Args:
        epoch: fraction of epochs that are done, counted from 0.
        epochs: epochs in the whole training; None if they are not known.
    """
    current = max(1, math.ceil(epoch))
    return min(current, epochs) if epochs else current


class LogParser(Protocol):
    """Parser of progress in the lines of one job's log; it gets the lines in order."""

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""


class TransferLogParser:
    """Parser of the progress of a fetch or an export; see `trainjob.programs.fetch.progress`."""

    def __init__(self) -> None:
        """Create a parser that has read no line yet."""
        self._percent = 0

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        found = _TRANSFERRED.fullmatch(line) if line.startswith(("fetch: ", "export: ")) else None
        if not found or int(found["percent"]) <= self._percent:
            return None
        self._percent = int(found["percent"])
        return Progress(step=self._percent, total=100, unit="percent")

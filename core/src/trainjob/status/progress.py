"""How far a job is, as its log reports it: a point of progress, and the parser for a fetch's log."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Protocol

# A line is anybody's text: each part of a pattern has an end and begins nowhere else, so that reading a line takes time
# by its length only.
# trainjob.programs.fetch.telling: `fetch: 3/7 model.safetensors 12.3 MB (45 %)`, with more in the brackets at times.
_FETCHED = re.compile(r"fetch: .{1,4096} \((?P<percent>[0-9]{1,3}) %(?:, already there)?\)")


@dataclass(frozen=True)
class Progress:
    """A point in a training, or in a fetch.

    Attributes:
        step: optimizer steps done.
        total: optimizer steps in the whole training; None until it is known.
        epoch: epochs begun, counted from 1; None when the log does not say.
        epochs: epochs in the whole training; None until it is known.
        loss: training loss at this step; None when it is not a finite number.
        unit: what `step` and `total` count: a training's `step`, or `percent` of the bytes of a fetch.
    """

    step: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    unit: str = "step"

    @property
    def percent(self) -> float | None:
        """0-100, or None while the total is not known."""
        return min(100.0, 100.0 * self.step / self.total) if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; a training's without their unit."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("unit", "step")}

    def __str__(self) -> str:
        if self.unit == "percent":
            return f"{self.step} % fetched"
        percent = "" if self.percent is None else f" ({self.percent:.0f} %)"
        epoch = "" if self.epoch is None else f", epoch {self.epoch}/{self.epochs or '?'}"
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return f"step {self.step}/{self.total or '?'}{percent}{epoch}{loss}"


class LogParser(Protocol):
    """A reader of progress in the lines of one job's log, in order."""

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""


class FetchLogParser:
    """Reads the progress of a fetch; see `trainjob.programs.fetch`."""

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._percent = 0

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        found = _FETCHED.fullmatch(line) if line.startswith("fetch: ") else None
        if not found or int(found["percent"]) <= self._percent:
            return None
        self._percent = int(found["percent"])
        return Progress(step=self._percent, total=100, unit="percent")

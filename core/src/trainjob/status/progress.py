"""Progress of a job as its log reports it, and the parser for the log of a fetch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Protocol

# A line can have any text. Each part of the pattern has a limit and can start at one place only, so that the time to
# match a line grows linearly with its length.
# The format of trainjob.programs.fetch is `fetch: 3/7 model.safetensors 12.3 MB (45 %)`, sometimes with more in the
# parentheses.
_FETCHED = re.compile(r"fetch: .{1,4096} \((?P<percent>[0-9]{1,3}) %(?:, already there)?\)")


@dataclass(frozen=True)
class Progress:
    """Progress of a training or of a fetch at one moment.

    Attributes:
        step: optimizer steps done.
        total: optimizer steps in the whole training; None until it is known.
        epoch: current epoch, counted from 1; None if the log does not report it.
        epochs: epochs in the whole training; None until it is known.
        loss: training loss at this step; None if it is not a finite number.
        unit: unit of `step` and `total`: `step` of a training, or `percent` of the bytes of a fetch.
    """

    step: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    unit: str = "step"

    @property
    def percent(self) -> float | None:
        """Percentage from 0 to 100; None while the total is not known."""
        return min(100.0, 100.0 * self.step / self.total) if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """Return the progress as JSON values; `unit` is left out if it is `step`."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("unit", "step")}

    def __str__(self) -> str:
        if self.unit == "percent":
            return f"{self.step} % fetched"
        percent = "" if self.percent is None else f" ({self.percent:.0f} %)"
        epoch = "" if self.epoch is None else f", epoch {self.epoch}/{self.epochs or '?'}"
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return f"step {self.step}/{self.total or '?'}{percent}{epoch}{loss}"


class LogParser(Protocol):
    """Parser of progress in the lines of one job's log; it gets the lines in order."""

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""


class FetchLogParser:
    """Parser of the progress of a fetch; see `trainjob.programs.fetch`."""

    def __init__(self) -> None:
        """Create a parser that has read no line yet."""
        self._percent = 0

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        found = _FETCHED.fullmatch(line) if line.startswith("fetch: ") else None
        if not found or int(found["percent"]) <= self._percent:
            return None
        self._percent = int(found["percent"])
        return Progress(step=self._percent, total=100, unit="percent")

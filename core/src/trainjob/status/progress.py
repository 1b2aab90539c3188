"""How far a training is, read from its log lines: the only source of progress that TorchTune offers."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

# TorchTune 0.6.1 recipes draw one tqdm frame a step, `epoch|global step|Loss: x: 12%|... | 5/42 [...]`, and dump their
# configuration as YAML before the first.
_FRAME = re.compile(
    r"(?P<epoch>\d+)\|(?P<step>\d+)\|Loss: (?P<loss>nan|-?inf|[-+0-9.eE]+):\s+\d+%\|[^|]*\| \d+/(?P<per_epoch>\d+) \["
)
# torchtune.training.metric_logging.StdoutLogger: `Step 6 | loss:2.42 lr:0.003 ...`
_METRICS = re.compile(r"Step (?P<step>\d+) \| .*?loss:(?P<loss>nan|-?inf|[-+0-9.eE]+)")
_EPOCHS = re.compile(r"^\s*epochs: (?P<epochs>\d+)\s*$")


@dataclass(frozen=True)
class Progress:
    """A point in a training.

    Attributes:
        step: optimizer steps done.
        total: optimizer steps in the whole training; None until it is known.
        epoch: epochs begun, counted from 1; None when the log does not say.
        epochs: epochs in the whole training; None until it is known.
        loss: training loss at this step; None when it is not a finite number.
    """

    step: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None

    @property
    def percent(self) -> float | None:
        """0-100, or None while the total is not known."""
        return min(100.0, 100.0 * self.step / self.total) if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        percent = "" if self.percent is None else f" ({self.percent:.0f} %)"
        epoch = "" if self.epoch is None else f", epoch {self.epoch}/{self.epochs or '?'}"
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return f"step {self.step}/{self.total or '?'}{percent}{epoch}{loss}"


class TorchTuneProgress:
    """Reads the lines (or tqdm frames) of one training log, in order."""

    def __init__(self) -> None:
        self._epochs: int | None = None
        self._step = 0

    def feed(self, line: str) -> Progress | None:
        """The progress a line tells, or None when it tells nothing new."""
        if found := _EPOCHS.match(line):
            self._epochs = int(found["epochs"])
            return None
        if found := _FRAME.search(line):
            return self._advance(
                Progress(
                    step=int(found["step"]),
                    total=int(found["per_epoch"]) * self._epochs if self._epochs else None,
                    epoch=int(found["epoch"]),
                    epochs=self._epochs,
                    loss=_finite(found["loss"]),
                )
            )
        if found := _METRICS.search(line):
            return self._advance(Progress(step=int(found["step"]), epochs=self._epochs, loss=_finite(found["loss"])))
        return None

    def _advance(self, progress: Progress) -> Progress | None:
        if progress.step <= self._step:
            return None
        self._step = progress.step
        return progress


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None

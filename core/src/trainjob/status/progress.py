"""How far a training or a fetch is, read from its log lines: the only source of progress that TorchTune offers."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

# TorchTune 0.6.1 recipes draw one tqdm frame a step, `epoch|global step|Loss: x: 12%|... | 5/42 [...]`, and dump their
# configuration as YAML before the first.
# Each part has an end and begins nowhere else: a line is anybody's text, and reading it takes time by its length only.
_FRAME = re.compile(
    r"(?<![0-9])(?P<epoch>[0-9]{1,18})\|(?P<step>[0-9]{1,18})\|Loss: (?P<loss>[-+0-9.eEnaif]{1,32}):\s{1,8}[0-9]{1,3}%"
    r"\|[^|]{0,256}\| [0-9]{1,18}/(?P<per_epoch>[0-9]{1,18}) \["
)
# torchtune.training.metric_logging.StdoutLogger: `Step 6 | loss:2.42 lr:0.003 ...`
_METRICS = re.compile(r"Step (?P<step>[0-9]{1,18}) \| (?:[^| ]{1,256} ){0,64}?loss:(?P<loss>[-+0-9.eEnaif]{1,32})")
# trainjob.programs.fetch.telling: `fetch: 3/7 model.safetensors 12.3 MB (45 %)`, with more in the brackets at times.
_FETCHED = re.compile(r"fetch: .{1,4096} \((?P<percent>[0-9]{1,3}) %(?:, already there)?\)")
_EPOCHS = re.compile(r"\s*epochs: (?P<epochs>[0-9]{1,18})\s*")


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


class TorchTuneProgress:
    """Reads the lines (or tqdm frames) of one training's log, or the lines of one fetch's, in order."""

    def __init__(self) -> None:
        self._epochs: int | None = None
        self._step = 0

    def feed(self, line: str) -> Progress | None:
        """The progress a line tells, or None when it tells nothing new."""
        if "|" not in line:  # nearly all lines, told from the rest in no time
            if "epochs:" in line and (found := _EPOCHS.fullmatch(line)):
                self._epochs = int(found["epochs"])
            elif line.startswith("fetch: ") and (found := _FETCHED.fullmatch(line)):
                return self._advance(Progress(step=int(found["percent"]), total=100, unit="percent"))
            return None
        if found := _FRAME.search(line):
            epoch, per_epoch = int(found["epoch"]), int(found["per_epoch"])
            return self._advance(
                Progress(
                    step=_in_whole_training(int(found["step"]), epoch, per_epoch),
                    total=per_epoch * self._epochs if self._epochs else None,
                    epoch=epoch,
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


def _in_whole_training(step: int, epoch: int, per_epoch: int) -> int:
    """The step, also where a resumed training counts from its own beginning, as those of LoRA do (torchtune 0.6.1)."""
    if not per_epoch:
        return step
    counted = -(-step // per_epoch)  # epochs begun since the count began
    return step + max(0, epoch - counted) * per_epoch


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

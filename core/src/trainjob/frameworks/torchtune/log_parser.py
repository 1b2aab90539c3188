"""Parser of a training's progress in its log lines.

The log is the only source of progress that TorchTune offers.
"""

from __future__ import annotations

import math
import re

from trainjob.status import Progress

# A line may contain any text. Each part of a pattern has a limited length and only one possible start, so that the time
# to parse a line grows linearly with its length.
#
# TorchTune 0.6.1 recipes print one tqdm frame per step, `epoch|global step|Loss: x: 12%|... | 5/42 [...]`. They print
# their configuration as YAML before the first frame.
_FRAME = re.compile(
    r"(?<![0-9])(?P<epoch>[0-9]{1,18})\|(?P<step>[0-9]{1,18})\|Loss: (?P<loss>[-+0-9.eEnaif]{1,32}):\s{1,8}[0-9]{1,3}%"
    r"\|[^|]{0,256}\| [0-9]{1,18}/(?P<per_epoch>[0-9]{1,18}) \["
)
# torchtune.training.metric_logging.StdoutLogger: `Step 6 | loss:2.42 lr:0.003 ...`
_METRICS = re.compile(r"Step (?P<step>[0-9]{1,18}) \| (?:[^| ]{1,256} ){0,64}?loss:(?P<loss>[-+0-9.eEnaif]{1,32})")
_EPOCHS = re.compile(r"\s*epochs: (?P<epochs>[0-9]{1,18})\s*")


class TorchTuneLogParser:
    """Parser of the lines, or tqdm frames, of one training's log; feed them in order."""

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._epochs: int | None = None
        self._step = 0

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        if "|" not in line:  # skip the patterns for nearly all lines
            if "epochs:" in line and (found := _EPOCHS.fullmatch(line)):
                self._epochs = int(found["epochs"])
            return None
        if found := _FRAME.search(line):
            epoch, per_epoch = int(found["epoch"]), int(found["per_epoch"])
            return self._advance(
                Progress(
                    step=_to_global_step(int(found["step"]), epoch, per_epoch),
                    total=per_epoch * self._epochs if self._epochs else None,
                    epoch=epoch,
                    epochs=self._epochs,
                    loss=_parse_finite(found["loss"]),
                )
            )
        if found := _METRICS.search(line):
            return self._advance(
                Progress(step=int(found["step"]), epochs=self._epochs, loss=_parse_finite(found["loss"]))
            )
        return None

    def _advance(self, progress: Progress) -> Progress | None:
        if progress.step <= self._step:
            return None
        self._step = progress.step
        return progress


def _to_global_step(step: int, epoch: int, per_epoch: int) -> int:
    """Return the number of a step in the whole training.

    A resumed LoRA training counts steps from its own beginning (torchtune 0.6.1).
    """
    if not per_epoch:
        return step
    counted = -(-step // per_epoch)  # epochs started since the step count started
    return step + max(0, epoch - counted) * per_epoch


def _parse_finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

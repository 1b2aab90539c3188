"""Parser of a training's progress in its log lines.

The log is the only source of progress that TorchTune offers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from trainjob.status.progress import Progress, parse_finite, update_metrics

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
_METRICS = re.compile(r"Step (?P<step>[0-9]{1,18}) \| (?P<values>[^|]{1,4096})")
_METRIC = re.compile(r"(?P<name>[^\s:|]{1,100}):(?P<value>\S{1,64})")
_EPOCHS = re.compile(r"\s*epochs: (?P<epochs>[0-9]{1,18})\s*")


class TorchTuneLogParser:
    """Parser of the lines, or tqdm frames, of one training's log; feed them in order."""

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._epochs: int | None = None
        self._last = Progress(step=0)
        self._offset = 0  # difference of a step in the whole training to the recipe's own count

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        if "|" not in line:  # skip the patterns for nearly all lines
            if "epochs:" in line and (found := _EPOCHS.fullmatch(line)):
                self._epochs = int(found["epochs"])
            return None
        progress = self._read_frame(found) if (found := _FRAME.search(line)) else None
        # A line of standard output may follow a frame without a line end between them.
        return (self._read_metrics(found) if (found := _METRICS.search(line)) else None) or progress

    def _read_frame(self, found: re.Match[str]) -> Progress | None:
        epoch, per_epoch, counted = int(found["epoch"]), int(found["per_epoch"]), int(found["step"])
        step = _to_global_step(counted, epoch, per_epoch)
        if step <= self._last.step:
            return None
        self._offset = step - counted
        self._last = Progress(
            step=step,
            total=per_epoch * self._epochs if self._epochs else None,
            epoch=epoch,
            epochs=self._epochs,
            loss=parse_finite(found["loss"]),
            metrics=self._last.metrics,
            carried=frozenset(self._last.metrics),
        )
        return self._last

    def _read_metrics(self, found: re.Match[str]) -> Progress | None:
        values = {name: parse_finite(text) for name, text in _METRIC.findall(found["values"])}
        step = int(found["step"]) + self._offset
        is_known = step == self._last.step and not self._last.carried and bool(self._last.metrics)
        if "loss" not in values or step < self._last.step or is_known or not step:
            return None
        loss = values.pop("loss")
        metrics = update_metrics(self._last.metrics, values)
        carried = frozenset(metrics.keys() - values.keys())
        if step == self._last.step:
            loss = loss if loss is not None else self._last.loss
        self._last = replace(self._last, step=step, epochs=self._epochs, loss=loss, metrics=metrics, carried=carried)
        return self._last


LOG_PARSER = TorchTuneLogParser


def _to_global_step(step: int, epoch: int, per_epoch: int) -> int:
    """Return the number of a step in the whole training.

    A resumed LoRA training counts steps from its own beginning (torchtune 0.6.1).
    """
    if not per_epoch:
        return step
    counted = -(-step // per_epoch)  # epochs started since the step count started
    return step + max(0, epoch - counted) * per_epoch

"""Parser of the log of transformers' Trainer, on which several frameworks are based.

These facts were seen in transformers 5.23:

* The trainer prints a dict at each logging step, after each evaluation, and at the end of the training. Floats have
  four digits and are strings: `{'loss': '4.64', 'learning_rate': '0.0024', 'epoch': '0.3333'}`. transformers 4 printed
  the floats themselves. `epoch` counts fractions from 0. The pods of this project add `step`, `max_steps` and
  `num_train_epochs`; otherwise, the dict does not contain the step.
* Unless `disable_tqdm` is set, a tqdm bar without a description on standard error counts the steps. tqdm removes the
  bar, writes the dict to standard output, and draws the bar again, with the step of the dict.
* A container runtime writes a line of standard error when the line ends or has 16 KiB. The frames of a bar are one
  line. They may therefore arrive long after the dicts. Then the order shows nothing about the step of a dict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainjob.status.progress import Progress, parse_finite, round_up_epoch, update_metrics

# A line may contain any text. Each part of a pattern has a limited length and only one possible start, so that the time
# to parse a line grows linearly with its length.
_ITEM = re.compile(
    r"""'(?P<name>[^'\\]{1,128})': """
    r"""(?:'(?P<text>[^'\\]{0,1024})'|"[^"\\]{0,1024}"|\[[^\[\]]{0,1024}\]|(?P<plain>[^,'"{}\[\]]{1,64}))"""
    r"(?:, |(?P<end>\}))"
)
_MAX_ITEMS = 256
# What tqdm writes to remove a bar: spaces, and "cursor up" for a bar below another one.
_CLEARED = re.compile(r"(?:\x1b\[A| )+")
# torchrun's `--tee` writes `[default0]:` before each line.
_TORCHRUN_PREFIX = re.compile(r"\[[A-Za-z_-]{1,64}[0-9]{1,9}\]:")
# A bar without a description. A bar below another one ends with "cursor up", and does not match.
_BAR = re.compile(
    r" {0,2}[0-9]{1,3}%\|[^|]{0,256}\| (?P<step>[0-9]{1,15})/(?P<total>[0-9]{1,15}) \[[^\[\]]{1,64}\] {0,8}"
)
_COUNT = re.compile(r"[0-9]{1,15}")
_EPOCH = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,24})?(?:e[-+]?[0-9]{1,2})?")


@dataclass(frozen=True)
class LoggedValues:
    """Numbers of one dict that the trainer has printed.

    Attributes:
        values: loss and metrics by name; None for a value that is not a finite number.
        epoch: fraction of epochs that are done, counted from 0.
        step: optimizer steps done; None if the dict does not contain them.
        total: optimizer steps in the whole training; None if the dict does not contain them.
        epochs: epochs in the whole training; None if the dict does not contain them.
    """

    values: Mapping[str, float | None]
    epoch: float
    step: int | None = None
    total: int | None = None
    epochs: int | None = None

    @property
    def is_training(self) -> bool:
        """Whether these are values of training steps; other lines have no `loss`."""
        return "loss" in self.values


class TransformersLogParser:
    """Parser of the lines, or tqdm frames, of one training's log; feed them in order.

    Steps never go back: after a restart, nothing is reported until the training has passed the last reported step.

    A dict without `step` gets the step of the bar only if the log has the frames around it in tqdm's order. Otherwise
    its values are reported as `carried`. A bar without a description may also be another program's. It is the
    trainer's bar if tqdm has redrawn it for a dict, but not if it had no step done when training steps were logged.
    """

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._step, self._epoch = 0, 0.0
        self._total: int | None = None
        self._epochs: int | None = None
        self._loss: float | None = None
        self._metrics: dict[str, float] = {}
        self._names_of_step: frozenset[str] = frozenset()  # names of the values that belong to the last reported step
        # The bar.
        self._bar_total: int | None = None  # total of the bar that is known to be the trainer's
        self._other_total: int | None = None  # total of a bar that is known to be another program's
        self._training_epoch: float | None = None  # of the last dict of training steps without a step
        self._epoch_repeats = False  # whether there were several trainings, so that their bars cannot be distinguished
        self._is_cleared = False  # whether the previous frame removed a bar
        self._last_logged: LoggedValues | None = None  # previous line, if tqdm redraws the bar after it

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        if not line:
            return None
        if "{'" in line and (logged := parse_logged_values(line)):
            self._is_cleared = self._is_cleared and "%|" not in line  # not after a part of another frame
            return self._read_values(logged)
        if "%|" in line:
            if line.endswith("\x1b[A"):
                return None  # a bar below the trainer's, for an evaluation
            if found := _BAR.fullmatch(line):
                return self._read_bar(int(found["step"]), int(found["total"]))
        # The first character decides for nearly all lines, without the pattern.
        self._is_cleared, self._last_logged = line[0] in " \x1b" and _CLEARED.fullmatch(line) is not None, None
        return None

    def _read_values(self, logged: LoggedValues) -> Progress | None:
        is_cleared, self._is_cleared, self._last_logged = self._is_cleared, False, None
        if logged.step is not None:
            if not self._is_new(logged.step, frozenset(logged.values)):
                return None
            self._total, self._epochs = logged.total, logged.epochs
            self._store(logged)
            return self._advance(logged.step, frozenset(logged.values))
        if logged.is_training:
            self._epoch_repeats |= self._training_epoch is not None and logged.epoch <= self._training_epoch
            self._training_epoch = logged.epoch
        if logged.epoch < self._epoch or (logged.epoch == self._epoch and self._has_values(logged.values)):
            return None
        self._store(logged)
        self._last_logged = logged if is_cleared else None
        self._names_of_step -= frozenset(logged.values)
        return self._build_progress()

    def _read_bar(self, step: int, total: int) -> Progress | None:
        is_cleared, self._is_cleared = self._is_cleared, False
        logged, self._last_logged = self._last_logged, None
        if logged and logged.is_training and not step:
            self._other_total = total
        is_redrawn = logged is not None or (is_cleared and self._training_epoch is not None and not self._epoch_repeats)
        if is_redrawn and 0 < step <= total != self._other_total:
            self._bar_total = total
        if total != self._bar_total:
            return None
        names = frozenset(logged.values) if logged else frozenset()
        if not self._is_new(step, names):
            return None
        self._total = total
        return self._advance(step, names)

    def _is_new(self, step: int, names: frozenset[str]) -> bool:
        """Return whether the step, or a value of the last reported step, has not been reported."""
        return step > self._step or (step == self._step and not names <= self._names_of_step)

    def _has_values(self, values: Mapping[str, float | None]) -> bool:
        """Return whether the values are known, for example from another node."""
        known = {**self._metrics, "loss": self._loss}
        return all(known.get(name) == value for name, value in values.items())

    def _store(self, logged: LoggedValues) -> None:
        self._epoch = logged.epoch
        if logged.is_training:
            self._loss = logged.values["loss"]
        self._metrics = update_metrics(
            self._metrics, {name: value for name, value in logged.values.items() if name != "loss"}
        )

    def _advance(self, step: int, names: frozenset[str]) -> Progress:
        self._names_of_step = names if step > self._step else self._names_of_step | names
        self._step = step
        return self._build_progress()

    def _build_progress(self) -> Progress:
        return Progress(
            step=self._step,
            total=self._total,
            epoch=round_up_epoch(self._epoch, self._epochs),
            epochs=self._epochs,
            loss=self._loss,
            metrics=dict(self._metrics),
            carried=frozenset({"loss", *self._metrics}) - self._names_of_step,
        )


def parse_logged_values(line: str) -> LoggedValues | None:
    """Return the numbers of a dict that the trainer has printed; None for any other line."""
    start = line.rfind("{'")
    items = _parse_items(line, start + 1) if start >= 0 and _is_prefix(line[:start]) else None
    epoch = items.pop("epoch", "") if items else ""
    if not items or not _EPOCH.fullmatch(epoch):
        return None
    step, total, epochs = (_parse_count(items.pop(name, "")) for name in ("step", "max_steps", "num_train_epochs"))
    has_step = step is not None and total is not None
    if not has_step and not _is_from_trainer(items):
        return None
    values = {name: parse_finite(text) for name, text in items.items() if name.isprintable()}
    return LoggedValues(values, float(epoch), step if has_step else None, total or None, epochs or None)


def _parse_items(line: str, start: int) -> dict[str, str] | None:
    """Return the texts of a dict's values by name; None if the line does not end with it."""
    items: dict[str, str] = {}
    for _ in range(_MAX_ITEMS):
        found = _ITEM.match(line, start)
        if found is None:
            return None
        items[found["name"]] = found["text"] or found["plain"] or ""
        start = found.end()
        if found["end"]:
            return items if start == len(line) else None
    return None


def _is_prefix(text: str) -> bool:
    """Return whether a dict of the trainer may follow a text in the same line.

    A container runtime may append the dict to an unfinished frame of a bar.
    """
    return not text or bool(_CLEARED.fullmatch(text) or _TORCHRUN_PREFIX.fullmatch(text)) or "%|" in text[-400:]


def _is_from_trainer(items: Mapping[str, str]) -> bool:
    """Return whether the names are those that transformers' Trainer always prints."""
    return (
        {"loss", "learning_rate"} <= items.keys()
        or "train_runtime" in items
        or any(name.startswith("eval_") and name.endswith("_runtime") for name in items)
    )


def _parse_count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None

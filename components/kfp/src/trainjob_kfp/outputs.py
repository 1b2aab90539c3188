"""What a component hands to later steps, and what it learns for that while its TrainJob runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trainjob.client import LogLine
from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import Workspace
from trainjob.status import Outcome, Progress, handed_back
from trainjob_kfp.loss_curve import loss_curve


class Outputs(NamedTuple):
    """What every component that has a TrainJob gives to later steps; their return annotations name the same fields.

    Attributes:
        job: the TrainJob's name.
        namespace: where it is.
        uid: its uid.
        status: `Complete`.
        workspace: the claim that was mounted at `/workspace`; empty when none was.
        output_path: where the step's result is: a folder of the workspace, or a URI.
    """

    job: str
    namespace: str
    uid: str
    status: str
    workspace: str
    output_path: str


class Metrics(Protocol):
    """A `kfp.dsl.Metrics` artifact, as far as it is used here."""

    def log_metric(self, metric: str, value: float) -> None:
        """Record one value."""


class Account:
    """Keeps what a TrainJob's log tells while `launch` follows it.

    Attributes:
        points: the progress it told, oldest first.
        handed_back: an export's receipt, or what a function returned, as `result`.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.points: list[Progress] = []
        self.handed_back: dict[str, Any] = {}

    def read(self, line: LogLine) -> None:
        """Takes each line of the log."""
        self.handed_back = handed_back(line.text) or self.handed_back

    @property
    def result(self) -> str:
        """What the training's function returned, as JSON; empty when it returned nothing."""
        return json.dumps(self.handed_back["result"]) if "result" in self.handed_back else ""


def outputs(outcome: Outcome, output_path: str = "", workspace: Workspace | None = None) -> Outputs:
    """A component's output parameters."""
    claim = workspace.claim if workspace else ""
    return Outputs(outcome.job, outcome.namespace, outcome.uid, outcome.phase.value, claim, output_path)


def log_training(outcome: Outcome, account: Account, metrics: Metrics) -> None:
    """How far the training went, its first and last loss, and how long all of it took; as far as that is known."""
    last = outcome.progress
    losses = [point.loss for point in account.points if point.loss is not None]
    known = {
        "loss": last.loss if last else None,
        "first_loss": losses[0] if losses else None,
        "steps": last.step if last else None,
        "epochs": last.epoch if last else None,
        "seconds": outcome.seconds,
    }
    for name, value in known.items():
        if value is not None:
            metrics.log_metric(name, float(value))


def write_loss_curve(outcome: Outcome, account: Account, path: str) -> None:
    """The page with the loss curve; it says so when the log's beginning was gone, as with pods that are deleted."""
    cut = not account.points and outcome.progress is None
    note = "The log told no progress: its pods were gone, or the image draws no progress bar." if cut else ""
    page = loss_curve(account.points, f"Training loss of {outcome.job}", note)
    Path(path).write_text(page, encoding="utf-8")


def log_scores(account: Account, metric: str, minimum: float, metrics: Metrics) -> tuple[float, bool]:
    """Records the numbers that an evaluation returned; the one that counts, and whether it is enough.

    Args:
        account: what the evaluation's log told.
        metric: which number counts.
        minimum: the least that is enough.
        metrics: takes all of them.

    Raises:
        InvalidSpec: the function did not return numbers by name, or not this one.
    """
    returned = account.handed_back.get("result")
    by_name = returned if isinstance(returned, Mapping) else {}
    scores = {name: value for name, value in by_name.items() if _is_number(value)}
    if metric not in scores:
        names = ", ".join(sorted(scores)) or "no numbers by name"
        told = (
            f"it returned {names}"
            if "result" in account.handed_back
            else "its log, as far as it is left, has no result"
        )
        rule = f"the function must return it as JSON, such as {{{metric!r}: 0.98}}; {told}"
        raise InvalidSpec(Problem("metric", repr(metric), rule))
    for name, value in scores.items():
        metrics.log_metric(name, float(value))
    return float(scores[metric]), scores[metric] >= minimum


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

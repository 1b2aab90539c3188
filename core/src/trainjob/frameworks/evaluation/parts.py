"""Parts of an evaluation, whose results are stored one by one: tasks, held-out rows, and a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.evaluation.function import parse_result, run_function
from trainjob.frameworks.evaluation.harness import Harness, Settings, read_scores
from trainjob.frameworks.evaluation.held_out import (
    HELD_OUT,
    compute_losses,
    divide_sums,
    read_rows,
    summarize_losses,
)
from trainjob.frameworks.evaluation.scores import Aggregation, Score
from trainjob.frameworks.row_files import describe_files

__all__ = ["Part", "list_parts"]

_Scored = tuple[dict[str, Score], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Part:
    """A part of an evaluation.

    Attributes:
        name: name before the slash in the names of its metrics.
        score: function that returns the scores of the model in a folder by metric, and its samples.
        find_aggregation: function that returns the aggregation of a metric that is not a mean; None if there is none.
        conditions: what the scores depend on besides the conditions of all parts.
    """

    name: str
    score: Callable[[Path], _Scored]
    find_aggregation: Callable[[str], Aggregation | None]
    conditions: Mapping[str, Any] = field(default_factory=dict)


def list_parts(
    harness: Harness | None, tasks: Sequence[str], held_out: Path | None, settings: Settings, function: str
) -> list[Part]:
    """Return the parts of an evaluation, in their order.

    The function is last, because it needs the memory of the harness's model.

    Args:
        harness: the harness; None if there are neither tasks nor rows.
        tasks: names of tasks.
        held_out: file or folder with rows for the loss; None for none.
        settings: how tasks are run.
        function: a function as `NAME:SOURCE`, with the source in base64; empty for none.

    Raises:
        InvalidSpec: the rows have a wrong form.
    """
    parts = [_build_task(harness, task) for task in tasks if harness]
    if harness and held_out:
        parts.append(_build_held_out(harness, held_out, settings))
    if function:
        parts.append(_build_function(harness, function))
    return parts


def _build_task(harness: Harness, task: str) -> Part:
    def score(folder: Path) -> _Scored:
        results = harness.run(harness.load(folder), task)
        scores = read_scores(results, task, harness.find_aggregation)
        if not scores:
            rule = f"it has no score of its own: name its tasks, such as {', '.join([*results['results']][:3])}"
            raise InvalidSpec(Problem("tasks", task, rule))
        return scores, [row for rows in results.get("samples", {}).values() for row in rows]

    return Part(task, score, lambda metric: harness.find_aggregation(task, metric))


def _build_held_out(harness: Harness, path: Path, settings: Settings) -> Part:
    rows = read_rows(path, settings.limit, chat_template=settings.chat_template)

    def score(folder: Path) -> _Scored:
        losses = compute_losses(harness.load(folder), rows)
        return summarize_losses(losses), [{"row": row, **asdict(loss)} for row, loss in losses.items()]

    return Part(HELD_OUT, score, lambda _: divide_sums, {HELD_OUT: [str(path), describe_files(path)]})


def _build_function(harness: Harness | None, function: str) -> Part:
    name = function.partition(":")[0]

    def score(folder: Path) -> _Scored:
        if harness:
            harness.release()
        return parse_result(name, run_function(function, folder))

    return Part(name, score, lambda _: None, {"function": function})

"""Scores of models by lm-evaluation-harness 0.4.13.

Each task is run alone, so that an interrupted evaluation continues with the next task.
"""

from __future__ import annotations

import difflib
import gc
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.evaluation.scores import Aggregation, Score
from trainjob.frameworks.model_folder import PRECISIONS, import_with_torch

__all__ = ["Harness", "Settings", "read_scores", "set_environment"]

_LONGEST_LIST = 10  # similar tasks in an error
_TAG = "it is a tag of several tasks, which has no score of its own: name these tasks"


@dataclass(frozen=True)
class Settings:
    """Settings of the harness for all tasks.

    Attributes:
        limit: rows of each task; None for all.
        num_fewshot: solved examples before each row; None for the task's own number.
        chat_template: whether prompts have the form of the tokenizer's chat template.
        generation: arguments of the generation, such as `{"max_gen_toks": 64}`.
        batch_size: rows at once.
        precision: `auto` (that of the model), `fp32`, `bf16` or `fp16`.
        seed: seed of examples and generation.
    """

    limit: int | None = None
    num_fewshot: int | None = None
    chat_template: bool = False
    generation: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 8
    precision: str = "auto"
    seed: int = 0


class Harness:
    """The library lm_eval, with the tasks that it knows.

    Args:
        settings: how tasks are run.
        task_folder: folder with task files of the user; None for none.
    """

    def __init__(self, settings: Settings, task_folder: Path | None) -> None:
        """Import the library; install it first if the image does not contain it.

        Raises:
            InvalidSpec: the image has no torch.
            RuntimeError: pip failed.
        """
        self._settings = settings
        self._library = import_with_torch("lm_eval")
        self.version = str(self._library.__version__)
        from lm_eval.tasks import TaskManager

        self._tasks = TaskManager(include_path=str(task_folder) if task_folder else None)
        self._aggregations: dict[str, Mapping[str, Aggregation]] = {}
        self._loaded: dict[Path, Any] = {}

    def check_tasks(self, names: Sequence[str]) -> None:
        """Raise an InvalidSpec for tasks that do not exist, and for tags, which have no score."""
        known, tags = {*self._tasks.all_subtasks, *self._tasks.all_groups}, {*self._tasks.all_tags}
        rules = {name: _TAG if name in tags else _suggest(name, known) for name in names if name not in known}
        if rules:
            raise InvalidSpec([Problem("tasks", name, rule) for name, rule in rules.items()])

    def load(self, folder: Path) -> Any:
        """Return the model in a folder, for [run][]; only one is loaded at a time."""
        import torch
        from lm_eval.models.huggingface import HFLM

        if folder in self._loaded:
            return self._loaded[folder]
        self.release()
        self._loaded[folder] = HFLM(
            pretrained=str(folder),
            dtype=PRECISIONS[self._settings.precision],
            batch_size=self._settings.batch_size,
            device="cuda" if torch.cuda.is_available() else "cpu",
            parallelize=torch.cuda.device_count() > 1,
        )
        return self._loaded[folder]

    def release(self) -> None:
        """Delete the loaded model, and free its memory."""
        import torch

        self._loaded.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def run(self, model: Any, task: str) -> dict[str, Any]:
        """Return the harness's results of a model in a task."""
        settings = self._settings
        found: dict[str, Any] = self._library.simple_evaluate(
            model=model,
            tasks=[task],
            task_manager=self._tasks,
            limit=settings.limit,
            num_fewshot=settings.num_fewshot,
            apply_chat_template=settings.chat_template,
            gen_kwargs=dict(settings.generation) or None,
            random_seed=settings.seed,
            numpy_random_seed=settings.seed,
            torch_random_seed=settings.seed,
            fewshot_random_seed=settings.seed,
        )
        return found

    def find_aggregation(self, task: str, metric: str) -> Aggregation | None:
        """Return the function that computes a metric from its items; None if there is none.

        Args:
            task: name of the task, or of a group of tasks.
            metric: name of the metric, which may have its filter after a comma.
        """
        if task not in self._aggregations:
            loaded = self._tasks.load([task])["tasks"].get(task)
            self._aggregations[task] = loaded.aggregation() if loaded else {}
        return self._aggregations[task].get(metric.partition(",")[0])


def set_environment() -> None:
    """Set the variables that libraries of Hugging Face read."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if token := os.environ.get("ACCESS_TOKEN"):  # the key of the steps' Secrets, for datasets on the Hub
        os.environ.setdefault("HF_TOKEN", token)


def _suggest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=_LONGEST_LIST)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{meant}name a task of lm-evaluation-harness, or the folder with your task files in task_path"


def read_scores(
    results: Mapping[str, Any], task: str, find_aggregation: Callable[[str, str], Aggregation | None]
) -> dict[str, Score]:
    """Return the scores of a task by metric, from the harness's results.

    A metric of another filter than `none` has the filter after a comma, such as `exact_match,strict-match`.

    Args:
        results: what [Harness.run][] returned.
        task: name of the task, or of a group of tasks.
        find_aggregation: function such as [Harness.find_aggregation][].
    """
    samples = results.get("samples", {}).get(task, ())
    found = results["results"].get(task, {}) | results.get("groups", {}).get(task, {})
    better = results.get("higher_is_better", {}).get(task, {})
    return {
        key.removesuffix(",none"): Score(
            float(value),
            _to_number(found.get(f"{metric}_stderr,{last}")),
            better.get(metric),
            *_read_rows(samples, metric, last, float(value), lambda name: find_aggregation(task, name)),
        )
        for key, value in found.items()
        for metric, comma, last in [key.rpartition(",")]
        if comma and not metric.endswith("_stderr") and _to_number(value) is not None
    }


def _to_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _read_rows(
    samples: Sequence[Mapping[str, Any]],
    metric: str,
    name: str,
    value: float,
    find_aggregation: Callable[[str], Aggregation | None],
) -> tuple[dict[str, Any], bool]:
    """Return the item of each row, and whether the metric is their mean.

    There are no items if the metric is not computed from them.
    """
    found = {
        str(sample["doc_id"]): sample[metric]
        for sample in samples
        if sample.get("filter", "none") == name and metric in sample
    }
    numbers = {row: float(item) for row, item in found.items() if isinstance(item, int | float)}
    if numbers and _is_close(sum(numbers.values()) / len(numbers), value):
        return numbers, True
    aggregate = find_aggregation(metric) if found else None
    try:
        items = json.loads(json.dumps(found, default=lambda item: item.item()))  # item: of a number of numpy
        if aggregate and _is_close(float(aggregate([*items.values()])), value):
            return items, False
    except Exception:  # noqa: BLE001 - the function may be the user's
        return {}, True
    return {}, True


def _is_close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-9)

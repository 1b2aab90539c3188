"""The evaluation program, from its arguments to its exit code.

Exit codes: 0 evaluated, whether the gates passed or not, 1 failed, 2 wrong arguments or input.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.frameworks.durable_files import write_text
from trainjob.frameworks.evaluation.comparison import Difference, compare
from trainjob.frameworks.evaluation.gates import Verdict, apply_gates, check_gates
from trainjob.frameworks.evaluation.harness import Harness, Settings, set_environment
from trainjob.frameworks.evaluation.parts import Part, list_parts
from trainjob.frameworks.evaluation.result_files import ResultFiles
from trainjob.frameworks.evaluation.scores import Score, name_scores
from trainjob.frameworks.model_folder import find_problem
from trainjob.frameworks.row_files import describe_files
from trainjob.job_variables import RUN_VARIABLE
from trainjob.version import check_version

__all__ = ["Evaluation", "evaluate", "main"]

_REPORT = "report.json"
_CHAMPION_FOLDER = "champion-model"  # for the files of a champion that is no folder of the workspace


@dataclass(frozen=True)
class Evaluation:
    """The request of an evaluation.

    Attributes:
        model: folder of the model.
        tasks: names of tasks.
        output: folder of the results.
        held_out: file or folder with rows for the loss; None for none.
        function: function that scores a model, as `NAME:SOURCE` with the source in base64; empty for none.
        champion: folder of the model to compare with; None for none.
        champion_source: arguments of a [trainjob.frameworks.evaluation.champion.ChampionSource][] if this model is no
            folder of the workspace; empty for none.
        allow_missing_champion: whether there may be no model in this folder.
        workspace: folder to which the paths in task files are relative.
        task_folder: folder with task files of the user; None for none.
        settings: how tasks are run.
        gates: fields of a [trainjob.spec.Gate][] by metric.
        confidence: confidence level of the differences' intervals.
        is_tracked: whether an experiment tracker reads the output.
    """

    model: Path
    tasks: tuple[str, ...]
    output: Path
    held_out: Path | None = None
    function: str = ""
    champion: Path | None = None
    champion_source: Mapping[str, Any] = field(default_factory=dict)
    allow_missing_champion: bool = False
    workspace: Path = Path("/workspace")
    task_folder: Path | None = None
    settings: Settings = field(default_factory=Settings)
    gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confidence: float = 0.95
    is_tracked: bool = False


@dataclass(frozen=True)
class Report:
    """The result of an evaluation.

    Attributes:
        scores: scores of the model by `TASK/METRIC`.
        champion_scores: those of the champion; empty without one.
        differences: differences of the two, of the metrics that can be compared row by row.
        verdicts: verdict of each rule of the gates.
    """

    scores: Mapping[str, Score]
    champion_scores: Mapping[str, Score]
    differences: Mapping[str, Difference]
    verdicts: Sequence[Verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "passed": all(verdict.passed for verdict in self.verdicts),
            "scores": {name: score.summarize() for name, score in self.scores.items()},
            "champion_scores": {name: score.summarize() for name, score in self.champion_scores.items()},
            "differences": {name: asdict(difference) for name, difference in self.differences.items()},
            "gates": [asdict(verdict) for verdict in self.verdicts],
        }

    def list_values(self) -> dict[str, float]:
        """Return scores, those of the champion, and differences by name."""
        groups: dict[str, Mapping[str, Score | Difference]]
        groups = {"": self.scores, "champion/": self.champion_scores, "difference/": self.differences}
        found = {f"{start}{name}": each.value for start, group in groups.items() for name, each in group.items()}
        return {name: value for name, value in found.items() if math.isfinite(value)}


def evaluate(request: Evaluation) -> Report:
    """Score the model and the champion, and apply the gates.

    Raises:
        InvalidSpec: a folder has no model, a task does not exist, rows have a wrong form, or a gate does not fit the
            metrics.
        RuntimeError: the harness cannot be installed.
        OSError: the results cannot be written.
    """
    folders = {"model": request.model}
    if champion := _find_champion(request):
        folders["champion"] = champion
    fields = {
        role: "champion" if folder.name == _CHAMPION_FOLDER else f"{role}_path" for role, folder in folders.items()
    }
    if problems := [problem for role, folder in folders.items() if (problem := find_problem(fields[role], folder))]:
        raise InvalidSpec(problems)
    os.chdir(request.workspace)
    set_environment()
    settings = request.settings
    harness = Harness(settings, request.task_folder) if request.tasks or request.held_out else None
    if harness:
        harness.check_tasks(request.tasks)
    parts = list_parts(harness, request.tasks, request.held_out, settings, request.function)
    conditions = {
        "settings": asdict(settings),
        "harness": harness.version if harness else "",
        "workflow_run": os.environ.get(RUN_VARIABLE, ""),
        "task_files": describe_files(request.task_folder) if request.task_folder else [],
        "dataset": describe_files(request.workspace / "dataset"),
    }

    def score(role: str) -> dict[str, Score]:
        files = ResultFiles(request.output / role, {**conditions, "model": describe_files(folders[role])})
        return _score(parts, role, folders[role], files)

    found = score("model")
    check_gates(request.gates, found)
    others = score("champion") if "champion" in folders else {}
    differences = _compare(parts, found, others, request.confidence)
    verdicts = apply_gates(request.gates, found, differences, has_champion="champion" in folders)
    return Report(found, others, differences, verdicts)


def _find_champion(request: Evaluation) -> Path | None:
    """Return the folder of the champion; None if there is none yet, and none is needed."""
    found, place = request.champion, str(request.champion)
    if request.champion_source:
        from trainjob.frameworks.evaluation.champion import ChampionSource, find_champion  # only packed if it is needed

        source = ChampionSource(**request.champion_source)
        found, place = find_champion(source, request.workspace, request.output / _CHAMPION_FOLDER), str(source)
    if found and (found.exists() or not request.allow_missing_champion):
        return found
    if request.champion_source and not request.allow_missing_champion:
        raise InvalidSpec(Problem("champion", place, "there is no such model yet: allow_missing_champion accepts that"))
    if request.champion or request.champion_source:
        print(f"evaluate: there is no champion yet: {place}: nothing is compared", flush=True)
    return None


def _score(parts: Sequence[Part], role: str, folder: Path, files: ResultFiles) -> dict[str, Score]:
    """Return the scores of a model; run the parts whose results are not on the workspace."""
    found = {}
    for number, part in enumerate(parts, start=1):
        place = f"evaluate: {role}, task {number} of {len(parts)}, {part.name}"
        own = replace(files, conditions={**files.conditions, **part.conditions}) if part.conditions else files
        if (scores := own.read(part.name)) is not None:
            print(f"{place}: scored by an earlier attempt", flush=True)
        else:
            print(place, flush=True)
            scores, samples = part.score(folder)
            own.write(part.name, scores, samples)
        for metric, score in scores.items():
            error = "" if score.stderr is None else f" ± {score.stderr:.4g}"
            print(f"evaluate: {role}: {part.name}/{metric} {score.value:.6g}{error}", flush=True)
        found[part.name] = scores
    return name_scores(found)


def _compare(
    parts: Sequence[Part], scores: Mapping[str, Score], others: Mapping[str, Score], confidence: float
) -> dict[str, Difference]:
    """Return the differences of the metrics that can be compared row by row."""
    find = {part.name: part.find_aggregation for part in parts}
    found = {}
    for name in [name for name in scores if name in others]:
        part, _, metric = name.rpartition("/")
        is_mean = scores[name].is_mean and others[name].is_mean
        if difference := compare(scores[name], others[name], confidence, None if is_mean else find[part](metric)):
            found[name] = difference
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the evaluation as a program and return its exit code.

    The last line of a successful run is `evaluate: done {json}`.
    """
    if problem := clean_environment():
        return _fail(2, problem)
    try:
        request = _parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments))
        path = request.output / _REPORT
        path.unlink(missing_ok=True)  # of an earlier run
        report = evaluate(request)
        write_text(path, json.dumps(report.to_dict(), indent=1))
    except InvalidSpec as refusal:
        return _fail(2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(1, str(failure))
    except Exception as error:  # noqa: BLE001 - a traceback may show a credential
        return _fail(1, f"{type(error).__name__}: {error}")
    for verdict in report.verdicts:
        print(f"evaluate: gate {verdict}", flush=True)
    if request.is_tracked:
        # The tracker reads the values of a training's step, as transformers' Trainer prints them.
        print({**report.list_values(), "step": 1, "max_steps": 1, "epoch": 1.0}, flush=True)
    print(f"evaluate: done {json.dumps({**report.to_dict(), 'report': str(path)})}", flush=True)
    return 0


def _parse_arguments(arguments: Sequence[str]) -> Evaluation:
    parser = argparse.ArgumentParser(prog="python -m trainjob.frameworks.evaluation", description="Score a model.")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--champion", type=Path, help="folder of the model to compare with")
    parser.add_argument("--champion-source", type=json.loads, help="JSON object: where the model to compare with is")
    parser.add_argument("--claim", default="", help="PersistentVolumeClaim of the workspace, and its folder")
    parser.add_argument("--api-folder", type=Path, default=Path(), help="folder of the service account's token")
    parser.add_argument("--fetch", type=json.loads, default=[], help="JSON list: command that fetches a model")
    parser.add_argument("--allow-missing-champion", action="store_true", help="let a model pass without a champion")
    parser.add_argument("--task", action="append", default=[], help="name of a task of lm-evaluation-harness")
    parser.add_argument("--held-out", type=Path, help="file or folder with rows for the loss")
    parser.add_argument("--function", default="", help="NAME:SOURCE of a function, with the source in base64")
    parser.add_argument("--task-folder", type=Path, help="folder with own task files")
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--workspace", type=Path, default=Path("/workspace"), help="folder of paths in task files")
    parser.add_argument("--limit", type=int, help="rows of each task")
    parser.add_argument("--num-fewshot", type=int, help="solved examples before each row")
    parser.add_argument("--chat-template", action="store_true", help="use the tokenizer's chat template")
    parser.add_argument("--generation", type=json.loads, default={}, help="JSON object of generation arguments")
    parser.add_argument("--batch-size", type=int, default=8, help="rows at once")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"), help="data type")
    parser.add_argument("--seed", type=int, default=0, help="seed of examples and generation")
    parser.add_argument("--gates", type=json.loads, default={}, help="JSON object of gates by metric")
    parser.add_argument("--confidence", type=float, default=0.95, help="level of the confidence intervals")
    parser.add_argument("--tracked", action="store_true", help="print the values for an experiment tracker")
    given = parser.parse_args(arguments)
    settings = Settings(
        given.limit,
        given.num_fewshot,
        given.chat_template,
        given.generation,
        given.batch_size,
        given.precision,
        given.seed,
    )
    source = {"claim": given.claim, "api_folder": given.api_folder, "fetch": given.fetch}
    source = {"fields": given.champion_source, **source} if given.champion_source else {}
    return Evaluation(
        given.model,
        tuple(given.task),
        given.output,
        given.held_out,
        given.function,
        given.champion,
        source,
        given.allow_missing_champion,
        given.workspace,
        given.task_folder,
        settings,
        given.gates,
        given.confidence,
        given.tracked,
    )


def _fail(code: int, message: str) -> int:
    print(f"evaluate: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code

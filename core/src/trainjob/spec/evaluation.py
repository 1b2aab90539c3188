"""Requests for the evaluation of a model, and for the answers of a model to the rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from trainjob.addresses import parse_source
from trainjob.spec.base import MAX_NODES, Spec, invalid_field, to_json_value
from trainjob.spec.base_request import STEP_ALIASES
from trainjob.spec.base_step import BaseStep, ModelFunction, check_program_image
from trainjob.spec.job import JobNames
from trainjob.spec.registry import Registry
from trainjob.spec.resources import Resources
from trainjob.spec.secrets import Endpoint
from trainjob.spec.tracking import Tracking
from trainjob.spec.volumes import WorkspaceField, validate_path_below

_HELD_OUT = "held_out"  # name before the metrics of these rows
_STEPS_OWN = ("dataset", "output")  # folders that other steps write, and that have no model to evaluate


_ONE_ANSWER = ("num_return_sequences", "n", "return_dict_in_generate")  # of the libraries that generate


def _validate_workspace_path(path: str, info: ValidationInfo) -> str:
    found = validate_path_below(path.removeprefix("/workspace/"), "")
    first = found.split("/")[0]
    if not first:
        raise invalid_field("", path, "it must be a path below /workspace, such as export")
    if info.field_name == "output_path" and first in ("dataset", "model", "output"):
        raise invalid_field("", path, f"another step writes /workspace/{first}; name another folder")
    if info.field_name in ("model_path", "champion_path") and first in _STEPS_OWN:
        rule = "it must be the folder of a complete model: export the training's checkpoint first"
        raise invalid_field("", path, rule)
    return found


class Gate(Spec):
    """Rules that a metric must follow, so that the evaluation has passed.

    Attributes:
        minimum: smallest value that is good enough.
        maximum: largest value that is good enough, for a metric such as a loss.
        not_worse_than_champion: largest loss against the champion that is accepted, in the unit of the metric. The
            whole confidence interval of the difference must be above it; 0 accepts an equal model.
        better_than_champion: whether the whole confidence interval of the difference must be above 0.
    """

    minimum: float | None = Field(default=None, allow_inf_nan=False)
    maximum: float | None = Field(default=None, allow_inf_nan=False)
    not_worse_than_champion: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    better_than_champion: bool = False

    @property
    def needs_champion(self) -> bool:
        """Whether a rule compares the model with the champion."""
        return self.better_than_champion or self.not_worse_than_champion is not None

    @model_validator(mode="after")
    def _require_rule(self) -> Self:
        if not self.needs_champion and self.minimum is None and self.maximum is None:
            rule = "give minimum, maximum, not_worse_than_champion or better_than_champion"
            raise invalid_field("", None, rule)
        return self


class Champion(Spec):
    """The model to compare with, if it is no folder of the workspace.

    It has exactly one of `uri`, `registry` and `service`. Its files are used where they are on the workspace, and
    fetched from elsewhere.

    Attributes:
        uri: its address, as of `InitializeModel`.
        registry: registry with a version of the model that has `alias`.
        alias: the alias.
        service: name of the service that serves it, as in `Promote`.
        service_kind: kind of the service; `Command` for one that `Promote` serves with a command or function.
        endpoint: URL of an object store other than AWS, Google or Azure.
        region: region of an S3 bucket.
        role_arn: ARN of the AWS role to assume.
    """

    uri: str | None = None
    registry: Registry | None = None
    alias: str = "champion"
    service: str | None = None
    service_kind: Literal["InferenceService", "LLMInferenceService", "Command"] = "InferenceService"
    endpoint: Endpoint | None = None
    region: str | None = None
    role_arn: str | None = None

    @field_validator("uri")
    @classmethod
    def _validate_uri(cls, uri: str | None) -> str | None:
        if uri is not None:
            parse_source(uri, "model")
        return uri

    @model_validator(mode="after")
    def _require_one_place(self) -> Self:
        given = [name for name in ("uri", "registry", "service") if getattr(self, name) is not None]
        if len(given) != 1:
            raise invalid_field("", ", ".join(given) or None, "give exactly one of uri, registry and service")
        return self


def _validate_task(name: str) -> str:
    if not name.strip() or name.strip() != name or "," in name or name.startswith("-"):
        raise invalid_field("", name, "it must be the name of a task of lm-evaluation-harness, such as arc_easy")
    return name


class Evaluate(BaseStep):
    """Step that scores a model, and compares it with a champion.

    Scores are those of tasks of lm-evaluation-harness, of held-out rows, and of a function; at least one is given. Each
    model is a folder of the workspace. A gate that fails is a result and no error.

    Attributes:
        workspace: PersistentVolumeClaim with the model.
        tasks: names of the tasks of lm-evaluation-harness 0.4.13, such as `arc_easy`, or of your own task files.
        held_out: file or folder below `/workspace` with rows for the loss, such as `dataset/eval`: JSON Lines or
            Parquet with `prompt` and `completion`, `messages`, or `text`. The metrics are `held_out/loss` by token and
            `held_out/bits_per_byte`.
        function: function such as `score(model_path)` that scores a model, or its text. It returns numbers by metric,
            or a list of such dicts, one for each row, which is compared row by row. A larger value is a better one. The
            metrics are `FUNCTION/METRIC`. Its source is sent, so it must import what it needs.
        model_path: folder of the model below `/workspace`, such as the path to which a step has exported it.
        champion_path: folder of the model to compare with, below `/workspace`; by default there is no comparison. Both
            are scored on the same rows, and compared row by row.
        champion: the model to compare with if it is no folder of the workspace: a `Champion`, or a dict of its fields.
        allow_missing_champion: whether gates that compare have passed while there is no champion yet, as in the first
            run of a workflow that promotes. Otherwise the step fails.
        task_path: folder with your own task files in YAML, below `/workspace`. Paths in these files are relative to
            `/workspace`, such as `dataset/eval/eval.jsonl`.
        gates: a `Gate`, or a dict of its fields, by metric: task and metric as in `arc_easy/acc`, with the filter
            after a comma if it has one, as in `gsm8k/exact_match,strict-match`; `held_out/loss`; or function and
            metric.
        limit: number of rows of each task, and of the held-out ones; by default all.
        num_fewshot: number of solved examples before each row; by default the task's own.
        chat_template: whether prompts get the form of the tokenizer's chat template.
        generation: arguments of the generation, such as `{"max_gen_toks": 64}`, in addition to the task's own.
        batch_size: number of rows at once.
        precision: data type of the weights: `auto` (as the model's configuration says), `fp32`, `bf16` or `fp16`.
        seed: seed of examples and generation.
        confidence: confidence level of the differences' intervals.
        output_path: folder of the results below `/workspace`: `report.json`, and the samples of each task. Evaluations
            that share a workspace each need their own folder.
        image: image with torch; by default the runtime's. pip installs what else tasks and held-out rows need, with
            fixed versions. A function alone needs only what it imports, and numpy if there is a champion.
        resources: resources of the step's pod, such as `{"gpu": 1, "memory": "32Gi"}`. With several GPUs, the layers of
            the model are divided among them.
        tracking: experiment tracker that gets the scores of both models, and their differences: an `MLflow`, `WandB` or
            `TensorBoard`, or a dict of its fields with `backend`.
        after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
            workflow run. A model without a record of its TrainJob is always accepted, and so is the champion.
        any_run: whether to evaluate the model of any workflow run.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        **dict.fromkeys(("model", "model_name_or_path"), "model_path"),
        "baseline": "champion",
        **dict.fromkeys(("include_path", "task_folder"), "task_path"),
        **dict.fromkeys(("gen_kwargs", "generation_config"), "generation"),
        **dict.fromkeys(("apply_chat_template",), "chat_template"),
        **dict.fromkeys(("dtype", "torch_dtype"), "precision"),
        **dict.fromkeys(("output", "output_dir"), "output_path"),
        **dict.fromkeys(("task", "benchmarks", "benchmark"), "tasks"),
        **dict.fromkeys(("eval_dataset_path", "eval_dataset", "validation_file"), "held_out"),
        **dict.fromkeys(("fewshot", "num_shots"), "num_fewshot"),
    }

    workspace: WorkspaceField
    tasks: tuple[Annotated[str, AfterValidator(_validate_task)], ...] = ()
    held_out: str | None = None
    function: ModelFunction | None = None
    model_path: str = "export"
    champion_path: str | None = None
    champion: Champion | None = None
    allow_missing_champion: bool = False
    task_path: str | None = None
    gates: Mapping[str, Gate] = Field(default_factory=dict)
    limit: int | None = Field(default=None, ge=1)
    num_fewshot: int | None = Field(default=None, ge=0)
    chat_template: bool = False
    generation: Annotated[dict[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)
    batch_size: int = Field(default=8, ge=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    seed: int = Field(default=0, ge=0, lt=2**32)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    output_path: str = "evaluation"
    image: str | None = None
    resources: Resources | None = None
    tracking: Tracking | None = None
    after_jobs: JobNames = ()
    any_run: bool = False

    @field_validator("held_out", "model_path", "champion_path", "task_path", "output_path")
    @classmethod
    def _validate_path(cls, path: str | None, info: ValidationInfo) -> str | None:
        return None if path is None else _validate_workspace_path(path, info)

    @model_validator(mode="after")
    def _validate_champion(self) -> Self:
        compared = [metric for metric, gate in self.gates.items() if gate.needs_champion]
        has_champion = self.champion_path is not None or self.champion is not None
        if compared and not has_champion:
            rule = f"the gate of {compared[0]} compares with it: name the folder of a model, or give champion"
            raise invalid_field("champion_path", None, rule)
        if self.allow_missing_champion and not has_champion:
            raise invalid_field("champion_path", None, "allow_missing_champion is about it: name it, or give champion")
        if self.champion_path is not None and self.champion is not None:
            raise invalid_field("champion_path", self.champion_path, "give only one of champion and champion_path")
        uri = (self.champion and self.champion.uri) or ""
        if uri.startswith("oci://") or (
            uri.startswith("pvc://") and parse_source(uri, "model").bucket != self.workspace.claim
        ):
            raise invalid_field(
                "champion.uri", uri, "it must be on the workspace's own PVC, or at an address to fetch from"
            )
        if self.champion_path == self.model_path:
            raise invalid_field("champion_path", self.champion_path, "it must be another folder than model_path")
        check_program_image(self.program, self.image, "torch and lm-eval")
        return self

    @model_validator(mode="after")
    def _validate_metrics(self) -> Self:
        own = {_HELD_OUT: self.held_out, getattr(self.function, "__name__", ""): self.function}
        names = [*self.tasks, *(name for name, value in own.items() if value)]
        if not names:
            rule = "name tasks of lm-evaluation-harness, or give held_out with rows for the loss, or a function"
            raise invalid_field("tasks", None, rule)
        if repeated := [name for name in self.tasks if own.get(name)]:
            rule = "the metrics of held_out or of the function have this name, too: rename the task or the function"
            raise invalid_field("tasks", repeated[0], rule)
        for metric in self.gates:
            task, _, name = metric.rpartition("/")
            if not name or task not in names:
                rule = f"it must be TASK/METRIC with one of the tasks: {', '.join(names)}"
                raise invalid_field("gates", metric, rule)
        return self


class Generate(BaseStep):
    """Step that generates an answer for each row of a dataset: batch inference.

    The rows are divided into shards, which the nodes compute. A retry continues with the unfinished shards, also with
    another number of nodes.

    Attributes:
        workspace: PersistentVolumeClaim with model and rows. Several nodes need one that all of them can write
            (ReadWriteMany).
        input_path: file or folder below `/workspace` with the rows, such as `dataset/eval`: JSON Lines or Parquet with
            `prompt`, `messages`, or `text`.
        model_path: folder of the model below `/workspace`, such as the path to which a step has exported it.
        output_path: folder of the output below `/workspace`. Its file `generated.jsonl` has each row with
            `generated_text` and `generated_tokens`, in the order of the input.
        engine: library that generates: `transformers`, or `vllm`, which needs an image with vLLM.
        generation: arguments of transformers' `generate`, such as `{"max_new_tokens": 64, "do_sample": true}`. By
            default an answer has at most 256 tokens. For vLLM they are converted, and others are those of its
            `SamplingParams`.
        chat_template: whether a `prompt` gets the form of the tokenizer's chat template, which conversations always
            have.
        limit: number of rows; by default all.
        batch_size: number of rows at once. vLLM forms batches itself.
        precision: data type of the weights: `auto` (as the model's configuration says), `fp32`, `bf16` or `fp16`.
        seed: seed of the generation; each shard has its own one.
        num_nodes: number of nodes.
        image: image with torch; by default the runtime's. pip installs transformers with fixed versions if the image
            does not contain it.
        resources: resources of each node, such as `{"gpu": 1, "memory": "32Gi"}`. With several GPUs, the model is
            divided among them.
        after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
            workflow run. A model without a record of its TrainJob is always accepted.
        any_run: whether the model may be of any workflow run.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        **dict.fromkeys(("model", "model_name_or_path"), "model_path"),
        **dict.fromkeys(("dataset", "dataset_path", "rows", "prompts", "input_file"), "input_path"),
        **dict.fromkeys(("output", "output_dir", "output_file"), "output_path"),
        **dict.fromkeys(("gen_kwargs", "generation_config", "sampling_params"), "generation"),
        **dict.fromkeys(("apply_chat_template",), "chat_template"),
        **dict.fromkeys(("dtype", "torch_dtype"), "precision"),
        **dict.fromkeys(("resources_per_node",), "resources"),
    }

    workspace: WorkspaceField
    input_path: str
    model_path: str = "export"
    output_path: str = "generated"
    engine: Literal["transformers", "vllm"] = "transformers"
    generation: Annotated[dict[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)
    chat_template: bool = False
    limit: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=8, ge=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    seed: int = Field(default=0, ge=0, lt=2**32)
    num_nodes: int = Field(default=1, ge=1, le=MAX_NODES)
    image: str | None = None
    resources: Resources | None = None
    after_jobs: JobNames = ()
    any_run: bool = False

    _validate_path = field_validator("input_path", "model_path", "output_path")(_validate_workspace_path)

    @field_validator("generation")
    @classmethod
    def _validate_generation(cls, generation: dict[str, Any]) -> dict[str, Any]:
        if given := [name for name in _ONE_ANSWER if name in generation]:
            raise invalid_field(given[0], generation[given[0]], "each row has one answer: leave it out")
        return generation

    @model_validator(mode="after")
    def _validate_output(self) -> Self:
        for name in ("input_path", "model_path"):
            path: str = getattr(self, name)
            if f"{self.output_path}/".startswith(f"{path}/") or f"{path}/".startswith(f"{self.output_path}/"):
                rule = f"neither it nor {name} may contain the other: name another folder, such as generated"
                raise invalid_field("output_path", self.output_path, rule)
        if self.engine == "vllm" and self.image is None:
            raise invalid_field("image", None, "engine='vllm' needs an image with vLLM")
        check_program_image(self.program, self.image, "torch and transformers")
        return self

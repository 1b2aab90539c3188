"""Configuration of TRL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_serializer, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.trl.argument_names import FIELD_ARGUMENTS, LORA_ARGUMENTS, PRECISION_ARGUMENTS, find_advice
from trainjob.frameworks.trl.argument_table import TRL_VERSIONS, find_problems
from trainjob.function_source import extract_source, read_source
from trainjob.spec.base import Spec, invalid_field, to_json_value
from trainjob.spec.credential_checks import check_source, check_values
from trainjob.spec.credential_rules import contains_credentials
from trainjob.spec.framework import FrameworkConfig

Method = Literal["sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation"]
ONLINE_METHODS = ("grpo", "rloo")
"""Methods that score the model's own answers with reward functions."""
REWARD_FUNCTIONS = (
    "accuracy_reward",
    "reasoning_accuracy_reward",
    "think_format_reward",
    "get_soft_overlong_punishment",
)
"""Names of TRL's own reward functions (trl 1.16, scripts/grpo.py)."""
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_COLUMN = re.compile(r"[^\x00-\x1f]{1,256}")


class TRLLoraConfig(Spec):
    """Configuration of LoRA for TRL; of QLoRA with `load_in_4bit`, of DoRA with `use_dora`.

    The names are those of `peft.LoraConfig`. After the training, the adapter is merged into a copy of the base model,
    so that an export can have either.

    Attributes:
        r: rank of the update.
        lora_alpha: scale of the update.
        lora_dropout: probability of dropping an input of the update, 0-1.
        target_modules: names of the layers that LoRA applies to, or `all-linear`; None means peft's choice for the
            model.
        modules_to_save: names of layers that are trained completely.
        use_dora: whether to learn the magnitudes of the weights, too.
        use_rslora: whether to scale by the square root of the rank (rank-stabilized LoRA).
        load_in_4bit: whether to keep the base model in 4 bits; requires a GPU and an image with bitsandbytes.
        load_in_8bit: whether to keep the base model in 8 bits; requires the same.
        merge: whether to save the merged model beside the adapter.
    """

    r: int | None = Field(default=None, ge=1)
    lora_alpha: int | None = Field(default=None, ge=1)
    lora_dropout: float | None = Field(default=None, ge=0, lt=1)
    target_modules: tuple[str, ...] | None = Field(default=None, min_length=1)
    modules_to_save: tuple[str, ...] | None = Field(default=None, min_length=1)
    use_dora: bool = False
    use_rslora: bool = False
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    merge: bool = True

    @model_validator(mode="after")
    def _validate_bits(self) -> Self:
        if self.load_in_4bit and self.load_in_8bit:
            raise invalid_field("load_in_8bit", True, "give load_in_4bit or load_in_8bit, not both")
        return self

    def to_arguments(self) -> dict[str, Any]:
        """Return TRL's arguments by name."""
        given = {ours: getattr(self, field) for field, ours in LORA_ARGUMENTS.items()}
        return {"use_peft": True, **{name: value for name, value in given.items() if value not in (None, False)}}


class TRLConfig(FrameworkConfig):
    """Configuration of a TRL run.

    Each method runs TRL's script of that name under torchrun. See `FrameworkConfig` for nodes, processes and resources.
    Unless a field says otherwise, None means the default of TRL.

    Attributes:
        method: `sft` (supervised fine-tuning), `dpo` and `kto` (preferences), `reward` (a reward model), `grpo` and
            `rloo` (reinforcement learning with rewards), or `distillation` (from a larger model).
        epochs: passes over the dataset; may be a fraction.
        max_steps: optimizer steps; if given, `epochs` does not count.
        batch_size: samples that a process computes at once.
        gradient_accumulation_steps: batches for each optimizer step.
        learning_rate: the optimizer's learning rate at its highest.
        lr_scheduler_type: schedule of the learning rate, such as `linear` or `cosine`.
        max_length: length in tokens to which a sample is cut.
        packing: whether several samples share a sequence; SFT only.
        precision: data type of the computations. With `fp16` and `bf16`, the weights stay fp32 unless `arguments` has
            `dtype`.
        gradient_checkpointing: whether to compute activations again instead of keeping them in memory.
        seed: random seed.
        eval_dataset_path: folder or file with the rows for evaluation, below `/workspace/dataset`.
        eval_strategy: when to evaluate; the default is `epoch` if `eval_dataset_path` is given.
        eval_steps: optimizer steps between two evaluations, with the strategy `steps`.
        save_strategy: when to save a checkpoint from which a later attempt can resume.
        save_steps: optimizer steps between two checkpoints, with the strategy `steps`.
        peft_config: configuration of LoRA; None trains all weights.
        attn_implementation: implementation of attention, such as `sdpa` or `flash_attention_2`.
        fsdp: whether to shard the model over all processes (FSDP2); its settings are `arguments["fsdp_config"]`.
        deepspeed: DeepSpeed's configuration; requires an image with deepspeed.
        use_vllm: whether vLLM generates the answers, in the training's own processes; GRPO, RLOO and distillation only.
            It requires an image with vllm.
        reward_functions: functions that score answers, for GRPO and RLOO: Python functions, names of TRL's own
            functions, or dotted names of functions in the image. The source of a Python function is sent, so it must
            import what it needs and use no names from outside it.
        teacher_path: folder of the larger model below `/workspace`, for distillation.
        columns: names of the dataset's columns by TRL's names, such as `{"prompt": "question"}`.
        arguments: any other argument of the method's script, by its name without `--`.
        trl_version: version of TRL, for the checks of this configuration and in the pod.
        pip_index_url: package index from which a pod without TRL installs it; None means pip's default.
        wheels_path: folder below `/workspace` with wheels, from which a pod without TRL installs it without an index.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    framework: ClassVar[str] = "trl"

    method: Method
    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_steps: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    lr_scheduler_type: str | None = None
    max_length: int | None = Field(default=None, ge=1)
    packing: bool | None = None
    precision: Literal["bf16", "fp16", "fp32"] | None = None
    gradient_checkpointing: bool | None = None
    seed: int | None = Field(default=None, ge=0)
    eval_dataset_path: str | None = None
    eval_strategy: Literal["steps", "epoch"] | None = None
    eval_steps: int | None = Field(default=None, ge=1)
    save_strategy: Literal["no", "steps", "epoch"] | None = None
    save_steps: int | None = Field(default=None, ge=1)
    peft_config: TRLLoraConfig | None = None
    attn_implementation: str | None = None
    fsdp: bool = False
    deepspeed: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] | None = None
    use_vllm: bool | None = None
    reward_functions: tuple[Callable[..., Any] | str, ...] = ()
    teacher_path: str | None = None
    columns: Mapping[str, str] = Field(default_factory=dict)
    arguments: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)
    trl_version: str = TRL_VERSIONS[-1]
    pip_index_url: str | None = None
    wheels_path: str | None = None

    def to_arguments(self) -> dict[str, Any]:
        """Return TRL's arguments by name, without those that depend on the step."""
        given = {ours: getattr(self, field) for field, ours in FIELD_ARGUMENTS.items()}
        precision = PRECISION_ARGUMENTS[self.precision] if self.precision else {}
        return {
            **{name: value for name, value in given.items() if value is not None},
            **({"eval_strategy": self.eval_strategy or "epoch"} if self.eval_dataset_path else {}),
            **precision,
            **(self.peft_config.to_arguments() if self.peft_config else {}),
            **({"lora_task_type": "SEQ_CLS"} if self.peft_config and self.method == "reward" else {}),
            **({"fsdp": True} if self.fsdp else {}),
            **({"vllm_mode": "colocate"} if self.use_vllm else {}),
            **self.arguments,
        }

    @field_serializer("reward_functions")
    def _serialize_reward_functions(self, functions: tuple[Callable[..., Any] | str, ...]) -> list[str]:
        """Return the functions' sources and names, which identify the request."""
        return [each if isinstance(each, str) else read_source(each) for each in functions]

    @field_validator("reward_functions")
    @classmethod
    def _validate_reward_functions(
        cls, functions: tuple[Callable[..., Any] | str, ...]
    ) -> tuple[Callable[..., Any] | str, ...]:
        for each in functions:
            if not isinstance(each, str):
                check_source(extract_source(each, field="")[0], "")
            elif each not in REWARD_FUNCTIONS and not _DOTTED_NAME.fullmatch(each):
                names = ", ".join(REWARD_FUNCTIONS)
                raise invalid_field("", each, f"give a function, a dotted name such as package.module.name, or {names}")
        return functions

    @field_validator("columns")
    @classmethod
    def _validate_columns(cls, columns: Mapping[str, str]) -> Mapping[str, str]:
        for ours, theirs in columns.items():
            if not _COLUMN.fullmatch(ours) or not _COLUMN.fullmatch(theirs):
                raise invalid_field(ours, theirs, "a column's name has 1 to 256 characters without control characters")
        if repeated := [name for name in columns.values() if list(columns.values()).count(name) > 1]:
            raise invalid_field("", repeated[0], "several names mean the same column of the dataset: give each once")
        return columns

    @field_validator("trl_version")
    @classmethod
    def _validate_version(cls, version: str) -> str:
        if version not in TRL_VERSIONS:
            raise invalid_field("", version, f"the arguments of these versions are known: {', '.join(TRL_VERSIONS)}")
        return version

    @field_validator("eval_dataset_path", "teacher_path", "wheels_path")
    @classmethod
    def _validate_path(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if path.startswith("/") or ".." in path.split("/") or not path.strip("/"):
            raise invalid_field("", path, "it must be a relative path without '..'")
        return path.strip("/")

    @field_validator("pip_index_url")
    @classmethod
    def _validate_index(cls, url: str | None) -> str | None:
        if url and contains_credentials(url):
            reference = "env={'PIP_INDEX_URL': SecretKeyReference(name='NAME', key='KEY')}"
            raise invalid_field("", "***", f"it must not contain a user name or password; give it as {reference}")
        return url

    @model_validator(mode="after")
    def _validate_arguments(self) -> Self:
        if problems := [*self._find_managed_arguments(), *self._find_method_problems(), *self._find_conflicts()]:
            raise InvalidSpec(problems)
        if problems := [
            *find_problems("arguments", self.arguments, self.trl_version, self.method),
            *self._find_field_problems(),
        ]:
            raise InvalidSpec(problems)
        check_values(self.arguments, "arguments")
        return self

    def _find_managed_arguments(self) -> Iterator[Problem]:
        for name, value in self.arguments.items():
            if advice := find_advice(name):
                yield from invalid_field(f"arguments.{name}", value, advice).problems

    def _find_field_problems(self) -> Iterator[Problem]:
        """Yield problems of the values that the fields give, under the fields' names."""
        names = {ours: field for field, ours in FIELD_ARGUMENTS.items()}
        given = {name: value for name, value in self.to_arguments().items() if name in names}
        for problem in find_problems("", given, self.trl_version, self.method):
            yield Problem(names[problem.field.removeprefix(".")], problem.value, problem.allowed)

    def _find_method_problems(self) -> Iterator[Problem]:
        """Yield the fields that the method does not have, and those that it lacks."""
        online, distills = self.method in ONLINE_METHODS, self.method == "distillation"
        if self.reward_functions and not online:
            yield Problem("reward_functions", f"{len(self.reward_functions)} functions", "only grpo and rloo use them")
        if online and not self.reward_functions and "reward_model_name_or_path" not in self.arguments:
            yield Problem("reward_functions", "nothing", f"{self.method} needs functions that score answers")
        if self.teacher_path and not distills:
            yield Problem("teacher_path", repr(self.teacher_path), "only distillation has a teacher")
        if distills and not self.teacher_path:
            yield Problem("teacher_path", "nothing", "distillation needs the folder of the larger model")

    def _find_conflicts(self) -> Iterator[Problem]:
        """Yield the fields that are not allowed together."""
        if self.eval_strategy and not self.eval_dataset_path:
            yield Problem("eval_strategy", repr(self.eval_strategy), "give eval_dataset_path, too")
        if self.eval_steps and self.eval_strategy != "steps":
            yield Problem("eval_steps", str(self.eval_steps), "give eval_strategy='steps', too")
        if self.save_steps and self.save_strategy not in (None, "steps"):
            yield Problem("save_steps", str(self.save_steps), "it is allowed only with save_strategy='steps'")
        if self.fsdp and self.deepspeed:
            yield Problem("deepspeed", "a dict", "give fsdp or deepspeed, not both")
        if self.arguments.get("save_total_limit") == 1:
            rule = "give at least 2: with 1, a kill during a save would leave no complete checkpoint"
            yield Problem("arguments.save_total_limit", "1", rule)
        lora = self.peft_config
        if self.arguments.get("use_cpu") is True and lora and (lora.load_in_4bit or lora.load_in_8bit):
            name = "load_in_4bit" if lora.load_in_4bit else "load_in_8bit"
            yield Problem(f"peft_config.{name}", "True", "it requires a GPU, but arguments has use_cpu")

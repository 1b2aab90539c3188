"""Configuration of TRL."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, field_serializer, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.frameworks.step_arguments import find_managed_arguments
from trainjob.frameworks.transformers_config import (
    PeftLoraConfig,
    TransformersConfig,
    find_conflicts,
    find_quantization_on_cpu,
    omit_unset,
    validate_relative_path,
)
from trainjob.frameworks.trl.argument_names import (
    ADVICE,
    LORA_ARGUMENTS,
    LORA_LEARNING_RATES,
    PRECISION_ARGUMENTS,
)
from trainjob.frameworks.trl.argument_table import METHODS, TRL_VERSIONS, find_problems, get_arguments
from trainjob.function_source import extract_source, function_from_source, read_source
from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_source, check_values
from trainjob.spec.credential_rules import contains_credentials

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


def _to_reward_function(value: Any) -> Any:
    """Return the function of a text with its source; the name of a function has no spaces."""
    if not isinstance(value, str) or len(value.split()) < 2:
        return value
    return function_from_source(value, field="")


RewardFunction = Annotated[Callable[..., Any] | str, BeforeValidator(_to_reward_function)]
"""A function, the text of one, or a name."""


class TRLLoraConfig(PeftLoraConfig):
    """Configuration of LoRA for TRL; of QLoRA with `load_in_4bit`, of DoRA with `use_dora`.

    The names are those of `peft.LoraConfig`. After the training, the adapter is merged into a copy of the base model,
    so that an export can have either.

    Attributes:
        target_modules: names of the layers that LoRA applies to, or `all-linear`; by default peft's choice for the
            model.
    """

    def to_arguments(self) -> dict[str, Any]:
        """Return TRL's arguments by name."""
        given = {ours: getattr(self, field) for field, ours in LORA_ARGUMENTS.items()}
        if self.target_modules and len(self.target_modules) == 1:
            given["lora_target_modules"] = [_to_pattern(self.target_modules[0])]
        return {"use_peft": True, **omit_unset(given)}


def _to_pattern(name: str) -> str:
    """Return the regular expression for a layer's name, or another text unchanged.

    TRL passes a list with one name to peft as a text (trl 1.16, trainer/model_config.py). peft searches a text as a
    regular expression for the whole name (peft 0.21.2, tuners/tuners_utils.py).
    """
    return rf"(.*\.)?{re.escape(name)}" if re.fullmatch(r"[\w.]+", name) else name


class TRLConfig(TransformersConfig):
    """Configuration of a TRL run.

    Each method runs TRL's script of that name under torchrun. See `FrameworkConfig` for nodes, processes and resources.
    Unless a field says otherwise, None means the default of TRL.

    Attributes:
        method: `sft` (supervised fine-tuning), `dpo` and `kto` (preferences), `reward` (a reward model), `grpo` and
            `rloo` (reinforcement learning with rewards), or `distillation` (from a larger model).
        learning_rate: the optimizer's learning rate at its highest. With LoRA, the default is ten times TRL's,
            which is for all weights: 2e-4 for `sft`, 1e-5 for the other methods. For `reward`, it is TRL's 1e-4.
        packing: whether several samples share a sequence; SFT only.
        precision: data type of the computations. With `fp16` and `bf16`, the weights stay fp32 unless `arguments` has
            `dtype`.
        gradient_checkpointing: whether to compute activations again instead of keeping them in memory.
        attn_implementation: implementation of attention, such as `sdpa` or `flash_attention_2`.
        fsdp: whether to shard the model over all processes (FSDP2); its settings are `arguments["fsdp_config"]`.
        use_vllm: whether vLLM generates the answers, in the training's own processes; GRPO, RLOO and distillation only.
            It requires an image with vllm.
        reward_functions: functions that score answers, for GRPO and RLOO: Python functions, names of TRL's own
            functions, or dotted names of functions in the image. The source of a Python function is sent, so it must
            import what it needs and use no names from outside it.
        teacher_path: folder of the larger model below `/workspace`, for distillation.
        arguments: any other argument of the method's script, by its name without `--`.
        trl_version: version of TRL, for the checks of this configuration and in the pod.
        pip_index_url: package index from which a pod without TRL installs it; by default pip's own.
        wheels_path: folder below `/workspace` with wheels, from which a pod without TRL installs it without an index.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    framework: ClassVar[str] = "trl"
    converted_fields: ClassVar[tuple[str, ...]] = ("fsdp",)
    usage: ClassVar[str] = 'config={"framework": "trl", "method": "sft"} trains another model of a workspace with TRL'
    lora_learning_rates: ClassVar[Mapping[str, float]] = LORA_LEARNING_RATES
    operational_fields: ClassVar[tuple[str, ...]] = (
        *TransformersConfig.operational_fields,
        *("gradient_checkpointing", "attn_implementation", "pip_index_url", "wheels_path"),
    )

    method: Method
    precision: Literal["bf16", "fp16", "fp32"] | None = None
    gradient_checkpointing: bool | None = None
    peft_config: TRLLoraConfig | None = None
    attn_implementation: str | None = None
    fsdp: bool = False
    use_vllm: bool | None = None
    reward_functions: tuple[RewardFunction, ...] = ()
    teacher_path: str | None = None
    trl_version: str = TRL_VERSIONS[-1]
    pip_index_url: str | None = None
    wheels_path: str | None = None

    @classmethod
    def list_arguments(cls) -> Collection[str]:
        """Return the names of the framework's own arguments."""
        return {name for method in METHODS for name in get_arguments(TRL_VERSIONS[-1], method)}

    @property
    def samples_per_step(self) -> int | None:
        """Samples of each optimizer step; None if the method groups them by process."""
        return None if self.method in ONLINE_METHODS else super().samples_per_step

    def to_arguments(self) -> dict[str, Any]:
        """Return TRL's arguments by name, without those that depend on the step."""
        precision = PRECISION_ARGUMENTS[self.precision] if self.precision else {}
        return {
            **self.get_given_arguments(),
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

    @field_validator("trl_version")
    @classmethod
    def _validate_version(cls, version: str) -> str:
        if version not in TRL_VERSIONS:
            raise invalid_field("", version, f"the arguments of these versions are known: {', '.join(TRL_VERSIONS)}")
        return version

    @field_validator("teacher_path", "wheels_path")
    @classmethod
    def _validate_path(cls, path: str | None) -> str | None:
        return validate_relative_path(path)

    @field_validator("pip_index_url")
    @classmethod
    def _validate_index(cls, url: str | None) -> str | None:
        if url == "":
            raise invalid_field("", url, "it must be a URL, such as https://pypi.org/simple; omit it for pip's default")
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
        return find_managed_arguments(
            self.arguments, ADVICE, self.list_field_arguments(), LORA_ARGUMENTS, TRLLoraConfig.__name__
        )

    def _find_field_problems(self) -> Iterator[Problem]:
        """Yield problems of the values that the fields give, under the fields' names."""
        names = {ours: field for field, ours in self.list_field_arguments().items()}
        given = {name: value for name, value in self.to_arguments().items() if name in names}
        for problem in find_problems("", given, self.trl_version, self.method):
            yield replace(problem, field=names[problem.field.removeprefix(".")])

    def _find_method_problems(self) -> Iterator[Problem]:
        """Yield the fields that the method does not have, and those that it lacks."""
        online, distills = self.method in ONLINE_METHODS, self.method == "distillation"
        if self.reward_functions and not online:
            yield Problem("reward_functions", f"{len(self.reward_functions)} functions", "only grpo and rloo use them")
        if online and not self.reward_functions and "reward_model_name_or_path" not in self.arguments:
            yield Problem(
                "reward_functions", "nothing", f"{self.method} needs functions that score answers", ProblemKind.MISSING
            )
        if self.teacher_path and not distills:
            yield Problem("teacher_path", repr(self.teacher_path), "only distillation has a teacher")
        if distills and not self.teacher_path:
            yield Problem(
                "teacher_path", "nothing", "distillation needs the folder of the larger model", ProblemKind.MISSING
            )

    def _find_conflicts(self) -> Iterator[Problem]:
        """Yield the fields that are not allowed together."""
        yield from find_conflicts(self)
        if self.fsdp and self.deepspeed:
            yield Problem("deepspeed", "a dict", "give fsdp or deepspeed, not both")
        for name in self.arguments:
            if name.startswith("vllm_") and not self.use_vllm:
                rule = "it has an effect with use_vllm=True only: give it, too"
                yield invalid_field(f"arguments.{name}", self.arguments[name], rule).problems[0]
        yield from find_quantization_on_cpu(self, self.peft_config)

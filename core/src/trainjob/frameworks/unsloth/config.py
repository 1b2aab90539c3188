"""Configuration of Unsloth."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.argument_checks import find_problems
from trainjob.frameworks.step_arguments import find_managed_arguments
from trainjob.frameworks.transformers_config import (
    PeftLoraConfig,
    TransformersConfig,
    find_conflicts,
    omit_unset,
)
from trainjob.frameworks.unsloth.argument_names import (
    ADVICE,
    DDP_ADVICE,
    DTYPES,
    LORA_ARGUMENTS,
    LORA_LEARNING_RATES,
    PRECISION_ARGUMENTS,
)
from trainjob.frameworks.unsloth.argument_table import (
    UNSLOTH_VERSIONS,
    describe_program,
    get_arguments,
    get_lora_arguments,
    get_model_arguments,
)
from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_values
from trainjob.spec.resources import count_gpus, resolve_resources

GPU_ADVICE = "Unsloth trains on GPUs only: give a GPU, such as resources_per_node={'gpu': 1}"
"""Advice for a training without a GPU."""


class UnslothLoraConfig(PeftLoraConfig):
    """Configuration of LoRA for Unsloth; of QLoRA with `load_in_4bit`.

    The names are those of `FastLanguageModel.get_peft_model`. After the training, the adapter is merged into a copy of
    the base model, so that an export can have either. None means Unsloth's default.

    Attributes:
        lora_dropout: probability of dropping an input of the update, 0-1; Unsloth is fastest with 0.
        load_in_4bit: whether to keep the base model in 4 bits. Unlike Unsloth's own default, it is off.
        load_in_8bit: whether to keep the base model in 8 bits.
    """

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of `get_peft_model` by name."""
        given = {name: getattr(self, field) for field, name in LORA_ARGUMENTS.items() if not field.startswith("load_")}
        if self.target_modules == ("all-linear",):
            given["target_modules"] = "all-linear"
        return omit_unset(given)


class UnslothConfig(TransformersConfig):
    """Configuration of an Unsloth run.

    Unsloth loads the model with its own kernels, and a trainer of TRL trains it under torchrun. It trains on GPUs only.
    See `FrameworkConfig` for nodes, processes and resources. Unless a field says otherwise, None means the default of
    Unsloth, which often differs from TRL's.

    Attributes:
        method: `sft` (supervised fine-tuning), or `dpo` and `kto` (preferences).
        learning_rate: the optimizer's learning rate at its highest. With LoRA and `sft`, the default is 2e-4, as in
            Unsloth's own notebooks.
        max_length: length in tokens to which a sample is cut, Unsloth's `max_seq_length`.
        packing: whether several samples share a sequence; SFT only.
        precision: data type of weights and computations; by default bf16 on a GPU that supports it, otherwise fp16.
        gradient_checkpointing: whether to compute activations again instead of keeping them in memory. `unsloth`
            also moves some to the node's memory, and is the default.
        deepspeed: refused, because each process trains a copy of the model.
        arguments: any other argument of TRL's configuration of the method, and those of `from_pretrained` and
            `get_peft_model` that the reference lists, by name.
        unsloth_version: version of Unsloth, for the checks of this configuration and in the pod.
    """

    framework: ClassVar[str] = "unsloth"
    converted_fields: ClassVar[tuple[str, ...]] = ("deepspeed", "gradient_checkpointing")
    lora_learning_rates: ClassVar[Mapping[str, float]] = LORA_LEARNING_RATES
    operational_fields: ClassVar[tuple[str, ...]] = (*TransformersConfig.operational_fields, "gradient_checkpointing")

    method: Literal["sft", "dpo", "kto"]
    precision: Literal["bf16", "fp16"] | None = None
    gradient_checkpointing: bool | Literal["unsloth"] | None = None
    peft_config: UnslothLoraConfig | None = None
    unsloth_version: str = UNSLOTH_VERSIONS[-1]

    @classmethod
    def list_arguments(cls) -> Collection[str]:
        """Return the names of the framework's own arguments."""
        return {name for method in ("sft", "dpo", "kto") for name in get_arguments(UNSLOTH_VERSIONS[-1], method)}

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of TRL's trainer by name, without those that depend on the step."""
        checkpointing = self.gradient_checkpointing
        return {
            **self.get_given_arguments(),
            **(PRECISION_ARGUMENTS[self.precision] if self.precision else {}),
            **({"gradient_checkpointing": bool(checkpointing)} if checkpointing is not None else {}),
            **self._select_arguments(),
        }

    def to_model_arguments(self) -> dict[str, Any]:
        """Return the arguments of `from_pretrained` by name, without the model's folder."""
        lora = self.peft_config
        given = {
            "max_seq_length": self.max_length,
            "dtype": DTYPES[self.precision] if self.precision else None,
            "use_gradient_checkpointing": self.gradient_checkpointing,
            "random_state": self.seed,
        }
        return {
            "full_finetuning": lora is None,
            "load_in_4bit": lora is not None and lora.load_in_4bit,
            "load_in_8bit": lora is not None and lora.load_in_8bit,
            **{name: value for name, value in given.items() if value is not None},
            **self._select_arguments(*get_model_arguments(self.unsloth_version)),
        }

    def to_lora_arguments(self) -> dict[str, Any] | None:
        """Return the arguments of `get_peft_model` by name; None without LoRA."""
        if self.peft_config is None:
            return None
        given = {"use_gradient_checkpointing": self.gradient_checkpointing, "random_state": self.seed}
        return {
            **{name: value for name, value in given.items() if value is not None},
            **self.peft_config.to_arguments(),
            **self._select_arguments(*get_lora_arguments(self.unsloth_version)),
        }

    def _select_arguments(self, *names: str) -> dict[str, Any]:
        """Return the given arguments with these names; without names, those of TRL's trainer."""
        others = {*get_model_arguments(self.unsloth_version), *get_lora_arguments(self.unsloth_version)}
        return {
            name: value for name, value in self.arguments.items() if (name in names if names else name not in others)
        }

    @field_validator("unsloth_version")
    @classmethod
    def _validate_version(cls, version: str) -> str:
        if version not in UNSLOTH_VERSIONS:
            known = ", ".join(UNSLOTH_VERSIONS)
            raise invalid_field("", version, f"the arguments of these versions are known: {known}")
        return version

    @model_validator(mode="after")
    def _validate_arguments(self) -> Self:
        if problems := [
            *find_managed_arguments(
                self.arguments, ADVICE, self.list_field_arguments(), LORA_ARGUMENTS, UnslothLoraConfig.__name__
            ),
            *self._find_conflicts(),
            *self._find_resource_problems(),
        ]:
            raise InvalidSpec(problems)
        known = get_arguments(self.unsloth_version, self.method)
        program = describe_program(self.unsloth_version, self.method)
        types = {field: known[name] for field, name in self.list_field_arguments().items() if name in known}
        given = {field: value for field in types if (value := getattr(self, field)) is not None}
        if problems := [
            *find_problems("arguments", self.arguments, known, program),
            *(
                replace(problem, field=problem.field.removeprefix("."))
                for problem in find_problems("", given, types, program)
            ),
        ]:
            raise InvalidSpec(problems)
        check_values(self.arguments, "arguments")
        return self

    def _find_conflicts(self) -> Iterator[Problem]:
        """Yield the fields that are not allowed together, or with the method."""
        yield from find_conflicts(self)
        if self.deepspeed:
            yield Problem("deepspeed", "a dict", DDP_ADVICE)
        if self.packing and self.method != "sft":
            yield Problem("packing", "True", f"{self.method} trains on judged answers: only sft packs samples")
        if not self.peft_config:
            for name in get_lora_arguments(self.unsloth_version):
                if name in self.arguments:
                    yield invalid_field(f"arguments.{name}", self.arguments[name], "give peft_config, too").problems[0]

    def _find_resource_problems(self) -> Iterator[Problem]:
        """Yield the resources without a GPU, and more processes than GPUs."""
        resources = self.resources_per_node
        if resources is None:
            return
        found = resolve_resources(self.resources_per_node)
        devices = {name for name, amount in found.items() if "gpu" in name or "/mig-" in name}
        if not any(float(found[name]) for name in devices):
            yield Problem("resources_per_node", repr(resources), GPU_ADVICE)
        gpus, processes = count_gpus(self.resources_per_node), self.num_proc_per_node
        if processes and gpus and processes > gpus:
            rule = f"each process needs a GPU of its own, and a node has {gpus}"
            yield Problem("num_proc_per_node", str(processes), rule)

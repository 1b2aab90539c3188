"""Configuration of LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.argument_checks import describe_unknown, find_problems
from trainjob.frameworks.llamafactory.argument_names import (
    ADVICE,
    LORA_ARGUMENTS,
    LORA_LEARNING_RATES,
    PRECISION_ARGUMENTS,
)
from trainjob.frameworks.llamafactory.argument_table import LLAMAFACTORY_VERSIONS, get_arguments, get_templates
from trainjob.frameworks.step_arguments import find_managed_arguments
from trainjob.frameworks.transformers_config import (
    PeftLoraConfig,
    TransformersConfig,
    find_conflicts,
    find_quantization_on_cpu,
)
from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_values

COLUMNS = (
    "prompt",
    "query",
    "completion",
    "messages",
    "conversations",
    "text",
    "chosen",
    "rejected",
    "label",
    "system",
)
"""Names of columns that a method reads."""


class LLaMAFactoryLoraConfig(PeftLoraConfig):
    """Configuration of LoRA for LLaMA-Factory.

    It is QLoRA with `load_in_4bit`, and DoRA with `use_dora`. The names are those of `peft.LoraConfig`. After the
    training, the adapter is merged into a copy of the base model, so that an export can have either. None means
    LLaMA-Factory's default.

    Attributes:
        target_modules: names of the layers that LoRA applies to, or `all-linear`, which is the default.
    """

    def to_arguments(self) -> dict[str, Any]:
        """Return LLaMA-Factory's arguments by name."""
        given = {
            "lora_rank": self.lora_rank,
            "lora_alpha": self.lora_alpha,
            "lora_dropout": self.lora_dropout,
            "target_modules": _join_modules(self.target_modules),
            "modules_to_save": _join_modules(self.modules_to_save),
            "use_dora": self.use_dora or None,
            "use_rslora": self.use_rslora or None,
            "load_in_4bit": 4 if self.load_in_4bit else None,
            "load_in_8bit": 8 if self.load_in_8bit else None,
        }
        return {LORA_ARGUMENTS[field]: value for field, value in given.items() if value is not None}


class LLaMAFactoryConfig(TransformersConfig):
    """Configuration of a LLaMA-Factory run.

    Each method is a stage of `llamafactory-cli train`, which runs under torchrun. See `FrameworkConfig` for nodes,
    processes and resources. Unless a field says otherwise, None means the default of LLaMA-Factory.

    Attributes:
        method: `pt` (continued pre-training on plain texts), `sft` (supervised fine-tuning), or `dpo` and `kto`
            (preferences). With `dpo`, `arguments={"pref_loss": "orpo"}` selects another loss.
        template: name of the chat template, such as `llama3` or `qwen`; by default the tokenizer's own.
        learning_rate: the optimizer's learning rate at its highest. With LoRA, the default is 1e-4 for `pt` and `sft`,
            as in LLaMA-Factory's own examples.
        packing: whether several samples share a sequence; `pt` and `sft` only.
        precision: data type of the computations on a GPU; by default the model's own on a GPU that supports it, and
            fp32 on a CPU.
        arguments: any other argument of `llamafactory-cli train`, by its name.
        llamafactory_version: version of LLaMA-Factory, for the checks of this configuration and in the pod.
    """

    framework: ClassVar[str] = "llamafactory"
    renamed_arguments: ClassVar[Mapping[str, str]] = {
        **TransformersConfig.renamed_arguments,
        "max_length": "cutoff_len",
    }
    lora_learning_rates: ClassVar[Mapping[str, float]] = LORA_LEARNING_RATES

    method: Literal["pt", "sft", "dpo", "kto"]
    template: str | None = None
    precision: Literal["bf16", "fp16"] | None = None
    peft_config: LLaMAFactoryLoraConfig | None = None
    llamafactory_version: str = LLAMAFACTORY_VERSIONS[-1]

    @classmethod
    def list_arguments(cls) -> Collection[str]:
        """Return the names of the framework's own arguments."""
        return get_arguments(LLAMAFACTORY_VERSIONS[-1])

    def to_arguments(self) -> dict[str, Any]:
        """Return LLaMA-Factory's arguments by name, without those that depend on the step."""
        return {
            "finetuning_type": "lora" if self.peft_config else "full",
            **self.get_given_arguments(),
            **(PRECISION_ARGUMENTS[self.precision] if self.precision else {}),
            **(self.peft_config.to_arguments() if self.peft_config else {}),
            **self.arguments,
        }

    @field_validator("llamafactory_version")
    @classmethod
    def _validate_version(cls, version: str) -> str:
        if version not in LLAMAFACTORY_VERSIONS:
            known = ", ".join(LLAMAFACTORY_VERSIONS)
            raise invalid_field("", version, f"the arguments of these versions are known: {known}")
        return version

    @field_validator("columns")
    @classmethod
    def _validate_column_names(cls, columns: Mapping[str, str]) -> Mapping[str, str]:
        for name, theirs in columns.items():
            if name not in COLUMNS:
                raise invalid_field(name, theirs, f"the methods read the columns {', '.join(COLUMNS)}")
        return columns

    @model_validator(mode="after")
    def _validate_arguments(self) -> Self:
        if problems := [*self._find_managed_arguments(), *self._find_method_problems()]:
            raise InvalidSpec(problems)
        program = f"LLaMA-Factory {self.llamafactory_version}"
        known = get_arguments(self.llamafactory_version)
        if problems := [
            *find_problems("arguments", self.arguments, known, program),
            *self._find_field_problems(known, program),
        ]:
            raise InvalidSpec(problems)
        check_values(self.arguments, "arguments")
        return self

    def _find_managed_arguments(self) -> Iterator[Problem]:
        return find_managed_arguments(
            self.arguments, ADVICE, self.list_field_arguments(), LORA_ARGUMENTS, LLaMAFactoryLoraConfig.__name__
        )

    def _find_field_problems(self, known: Mapping[str, str], program: str) -> Iterator[Problem]:
        """Yield problems of the values that the fields give, under the fields' names."""
        types = {field: known[name] for field, name in self.list_field_arguments().items()}
        given = {field: value for field in types if (value := getattr(self, field)) is not None}
        for problem in find_problems("", given, types, program):
            yield replace(problem, field=problem.field.removeprefix("."))
        templates = get_templates(self.llamafactory_version)
        if self.template is not None and self.template not in templates:
            rule = describe_unknown(self.template, templates, f"{program} has no such template")
            yield Problem("template", repr(self.template), rule)

    def _find_method_problems(self) -> Iterator[Problem]:
        yield from find_conflicts(self)
        yield from find_quantization_on_cpu(self, self.peft_config)
        if self.packing and self.method not in ("pt", "sft"):
            yield Problem("packing", "True", f"{self.method} trains on pairs of answers: only pt and sft pack samples")
        if self.arguments.get("resize_vocab") and self.peft_config and self.peft_config.merge:
            # It pads the vocabulary to a multiple of 64 (llamafactory 0.9.5, model/model_utils/embedding.py), so the
            # adapter does not fit the base model with the tokenizer's size.
            rule = "with LoRA, give peft_config with merge=False, too: the adapter cannot be merged"
            yield Problem("arguments.resize_vocab", "True", rule)


def _join_modules(names: tuple[str, ...] | None) -> str | None:
    """Return names of layers as LLaMA-Factory's text; `all` means all linear layers."""
    return ",".join("all" if name == "all-linear" else name for name in names) if names else None

"""Configuration of a training with sentence-transformers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.frameworks.argument_checks import find_problems
from trainjob.frameworks.step_arguments import find_managed_arguments
from trainjob.frameworks.transformers_config import TransformersConfig, find_conflicts, validate_relative_path
from trainjob.spec.base import invalid_field, to_json_value
from trainjob.spec.credential_checks import check_values
from trainjob.spec.credential_rules import contains_credentials
from trainjob_sentence_transformers.argument_names import (
    ADVICE,
    ARGUMENTS,
    PRECISION_ARGUMENTS,
    VERSIONS,
)
from trainjob_sentence_transformers.pod.losses import LOSSES

_PROGRAM = f"sentence-transformers {VERSIONS[-1]}"


class SentenceTransformersConfig(TransformersConfig):
    """Configuration of the training of an embedding model.

    `SentenceTransformerTrainer` trains all weights under torchrun. See `FrameworkConfig` for nodes, processes and
    resources. Unless a field says otherwise, None means the default of sentence-transformers.

    Attributes:
        method: always `embedding`: a model that computes one vector for each text.
        loss: the loss, by the name of its class in sentence-transformers; it decides which columns the rows need.
        loss_arguments: arguments of the loss by name, such as `{"scale": 20.0}`.
        matryoshka_dims: lengths to which the embeddings may be cut later; the loss is computed for each of them.
        batch_size: rows that a process computes at once. A loss that compares the rows of a batch learns more from
            a large one.
        warmup_steps: steps in which the learning rate rises; a number below 1 is a part of all steps.
        max_length: length in tokens to which a text is cut, also by the trained model.
        precision: data type of the computations; the weights stay fp32.
        columns: names of the dataset's columns by the loss's names, such as `{"anchor": "question"}`.
        arguments: further arguments of `SentenceTransformerTrainingArguments` by name.
        sentence_transformers_version: version for the checks of this configuration and in the pod.
        pip_index_url: package index from which a pod without the library installs it; by default pip's own.
        wheels_path: folder below `/workspace` with wheels, from which such a pod installs it without an index.
        packing: refused, because texts do not share a sequence.
        peft_config: refused, because all weights are trained.
        deepspeed: refused, because each process trains a copy of the model.
    """

    framework: ClassVar[str] = "sentence_transformers"
    usage: ClassVar[str] = (
        'config={"framework": "sentence_transformers", "loss": "MultipleNegativesRankingLoss"} trains an embedding '
        "model of a workspace"
    )
    field_aliases: ClassVar[Mapping[str, str]] = {
        **TransformersConfig.field_aliases,
        **dict.fromkeys(("loss_function", "losses"), "loss"),
        **dict.fromkeys(("warmup", "warmup_ratio"), "warmup_steps"),
        "matryoshka_dimensions": "matryoshka_dims",
    }
    operational_fields: ClassVar[tuple[str, ...]] = (
        *TransformersConfig.operational_fields,
        *("pip_index_url", "wheels_path"),
    )

    method: Literal["embedding"] = "embedding"
    loss: Literal[
        "MultipleNegativesRankingLoss",
        "CachedMultipleNegativesRankingLoss",
        "TripletLoss",
        "CoSENTLoss",
        "AnglELoss",
        "CosineSimilarityLoss",
        "ContrastiveLoss",
        "OnlineContrastiveLoss",
    ]
    loss_arguments: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)
    matryoshka_dims: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(default=None, min_length=1)
    warmup_steps: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    precision: Literal["bf16", "fp16", "fp32"] | None = None
    sentence_transformers_version: str = VERSIONS[-1]
    pip_index_url: str | None = None
    wheels_path: str | None = None

    @classmethod
    def list_arguments(cls) -> Collection[str]:
        """Return the names of the framework's own arguments."""
        return ARGUMENTS.keys()

    @property
    def samples_per_step(self) -> int | None:
        """Samples of each optimizer step; None if the loss compares the rows of a batch."""
        return None if LOSSES[self.loss].compares_rows else super().samples_per_step

    def to_arguments(self) -> dict[str, Any]:
        """Return the trainer's arguments by name, without those that depend on the step."""
        return {
            **self.get_given_arguments(),
            **(PRECISION_ARGUMENTS[self.precision] if self.precision else {}),
            **self.arguments,
        }

    @field_validator("sentence_transformers_version")
    @classmethod
    def _validate_version(cls, version: str) -> str:
        if version not in VERSIONS:
            raise invalid_field("", version, f"the arguments of these versions are known: {', '.join(VERSIONS)}")
        return version

    @field_validator("wheels_path")
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
        if problems := [
            *find_managed_arguments(self.arguments, ADVICE, self.list_field_arguments(), {}, ""),
            *self._find_conflicts(),
        ]:
            raise InvalidSpec(problems)
        if problems := [
            *find_problems("arguments", self.arguments, ARGUMENTS, _PROGRAM),
            *find_problems("loss_arguments", self.loss_arguments, LOSSES[self.loss].arguments, self.loss),
        ]:
            raise InvalidSpec(problems)
        check_values(self.arguments, "arguments")
        return self

    def _find_conflicts(self) -> Iterator[Problem]:
        """Yield the fields that are not allowed together, or not with this framework."""
        yield from find_conflicts(self)
        refused = {
            "packing": (self.packing, "texts do not share a sequence: leave it out"),
            "peft_config": (self.peft_config, "all weights are trained: leave it out"),
            "deepspeed": (self.deepspeed, "each process trains a copy of the model (DDP): leave it out"),
        }
        for field, (value, rule) in refused.items():
            if value:
                yield from invalid_field(field, value, rule).problems
        known = {name for choice in LOSSES[self.loss].columns for name in choice}
        for name in self.columns.keys() - known:
            rule = f"{self.loss} has no such column: it has {', '.join(sorted(known))}"
            yield Problem(f"columns.{name}", repr(name), rule, ProblemKind.UNKNOWN)

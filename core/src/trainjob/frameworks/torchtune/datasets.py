"""Dataset classes that define how rows become the texts that a model is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag, field_validator

from trainjob.spec.base import Spec, invalid_field


class DataFormat(str, Enum):
    """Type of the dataset's files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    TEXT = "text"
    XML = "xml"


def to_enum_value(value: Any) -> Any:
    """Return the value of an enum member, such as one of the SDK's, or any other value as is."""
    return value.value if isinstance(value, Enum) else value


DataFormatField = Annotated[DataFormat, BeforeValidator(to_enum_value)]


def _validate_no_equals(value: str, field: str = "") -> str:
    # torchtune 0.6.1 splits each override at every "=" (torchtune/config/_utils.py).
    if "=" in value:
        raise invalid_field(field, value, "it must not contain '=', because TorchTune splits its arguments there")
    return value


def _validate_columns(columns: Mapping[str, str] | None, allowed: tuple[str, str]) -> Mapping[str, str] | None:
    for ours, theirs in (columns or {}).items():
        if ours not in allowed:
            raise invalid_field(ours, theirs, f"allowed keys are {' and '.join(allowed)}")
        _validate_no_equals(theirs, ours)
    return columns


class _Dataset(Spec):
    """Fields that every kind of dataset has.

    Attributes:
        source: type of the data files.
        split: name of the split, such as `train[:10%]`.
        train_on_input: whether the prompt counts in the loss.
        new_system_prompt: a system message put before each prompt.
    """

    source: DataFormatField | None = None
    split: str | None = None
    train_on_input: bool | None = None
    new_system_prompt: str | None = None

    @field_validator("split", "new_system_prompt")
    @classmethod
    def _validate_texts(cls, value: str | None) -> str | None:
        return None if value is None else _validate_no_equals(value)


class TorchTuneInstructDataset(_Dataset):
    """Prompts and answers (torchtune.datasets.instruct_dataset).

    Attributes:
        column_map: mapping of `input` and `output` to the real names of the columns.
    """

    kind: Literal["instruct"] = "instruct"
    column_map: Mapping[str, str] | None = None

    @field_validator("column_map")
    @classmethod
    def _validate_column_map(cls, columns: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return _validate_columns(columns, ("input", "output"))


class TorchTuneChatDataset(_Dataset):
    """Conversations of several turns (torchtune.datasets.chat_dataset).

    Attributes:
        conversation_column: the column that contains the conversations.
        conversation_style: format of a turn: `openai`, with role and content, or `sharegpt`, with from and value.
    """

    kind: Literal["chat"] = "chat"
    conversation_column: str
    conversation_style: Literal["openai", "sharegpt"]

    @field_validator("conversation_column")
    @classmethod
    def _validate_conversation_column(cls, value: str) -> str:
        return _validate_no_equals(value)


class TorchTunePreferenceDataset(_Dataset):
    """Pairs of a better and a worse conversation (torchtune.datasets.preference_dataset).

    Attributes:
        column_map: mapping of `chosen` and `rejected` to the real names of the columns.
    """

    kind: Literal["preference"] = "preference"
    column_map: Mapping[str, str] | None = None

    @field_validator("column_map")
    @classmethod
    def _validate_column_map(cls, columns: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return _validate_columns(columns, ("chosen", "rejected"))


def _get_kind(value: Any) -> str:
    """Return the kind of a dataset; `Instruct` if the value has no kind.

    The SDK's dataset classes have no kind, because the SDK supports instructions only.
    """
    kind = value.get("kind", "instruct") if isinstance(value, Mapping) else getattr(value, "kind", "instruct")
    return str(kind).capitalize()


TorchTuneDataset = Annotated[
    Annotated[TorchTuneInstructDataset, Tag("Instruct")]
    | Annotated[TorchTuneChatDataset, Tag("Chat")]
    | Annotated[TorchTunePreferenceDataset, Tag("Preference")],
    Discriminator(
        _get_kind,
        custom_error_type="kind",
        custom_error_message="allowed kinds are instruct, chat and preference",
    ),
]
"""Any of the dataset classes; a value without a kind is a dataset of instructions."""

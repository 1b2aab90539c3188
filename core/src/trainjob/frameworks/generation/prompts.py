"""Prompts of rows, as token ids.

The rows have the forms on which the frameworks train: `prompt`, `messages`, or `text`.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.row_files import are_messages, describe_row, iterate_rows

__all__ = ["ANSWER", "TOKENS", "Prompt", "encode_prompts", "parse_prompt", "read_prompts"]

ANSWER = "generated_text"
"""Field of a row with the answer."""
TOKENS = "generated_tokens"
"""Field of a row with the number of the answer's tokens."""
_FIELD = "input_path"
_FORMS = "each row must have prompt, messages with roles before an answer, or text"


@dataclass(frozen=True)
class Prompt:
    """A prompt: either a text, or a conversation that the model continues.

    Attributes:
        text: the text.
        messages: messages of a conversation, in place of the text.
    """

    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()


def read_prompts(path: Path, limit: int | None, *, chat_template: bool) -> tuple[list[Mapping[str, Any]], list[Prompt]]:
    """Return the rows of a file or folder, and the prompt of each row.

    Args:
        path: a file in JSON Lines or Parquet, or a folder with such files.
        limit: number of rows; None for all.
        chat_template: whether a `prompt` is the turn of a user.

    Raises:
        InvalidSpec: there are no rows, or one has another form.
    """
    rows, prompts = [], []
    for place, row in itertools.islice(iterate_rows(path, _FIELD), limit):
        prompts.append(parse_prompt(row, place, chat_template=chat_template))
        rows.append(row)
    if not rows:
        raise _refuse(str(path), "it must be a file in JSON Lines or Parquet with rows, or a folder with such files")
    return rows, prompts


def parse_prompt(row: Any, place: str, *, chat_template: bool) -> Prompt:
    """Return the prompt of a row.

    A conversation that ends with a turn of the assistant has its answer: the prompt is what comes before.

    Raises:
        InvalidSpec: the row has another form, or the field of the answer.
    """
    match row:
        case {"generated_text": _} | {"generated_tokens": _}:
            raise _refuse(place, f"it has {ANSWER} or {TOKENS}, which this step adds: rename the field")
        case {"prompt": str(text)} if text:
            return Prompt(messages=[{"role": "user", "content": text}]) if chat_template else Prompt(text)
        case {"prompt": [*messages]} if are_messages(messages):
            return Prompt(messages=messages)
        case {"messages": [*messages, last]} if are_messages([*messages, last]):
            found = messages if last["role"] == "assistant" else [*messages, last]
            if found:
                return Prompt(messages=found)
        case {"text": str(text)} if text:
            return Prompt(text)
    raise _refuse(place, f"{_FORMS}; it has {describe_row(row)}")


def encode_prompts(tokenizer: Any, prompts: Sequence[Prompt], longest: int | None) -> list[array[int]]:
    """Return the token ids of each prompt.

    Args:
        tokenizer: tokenizer of transformers.
        prompts: the prompts.
        longest: number of tokens that a prompt may have; None for any.

    Raises:
        InvalidSpec: a prompt is longer, or is a conversation while the tokenizer has no chat template.
    """
    if any(prompt.messages for prompt in prompts) and not tokenizer.chat_template:
        rule = "the rows are conversations, but the tokenizer in this folder has no chat template"
        raise InvalidSpec(Problem("model_path", str(tokenizer.name_or_path), rule))
    found = [array("I", _encode(tokenizer, prompt)) for prompt in prompts]
    for number, ids in enumerate(found, start=1):
        if longest is not None and len(ids) > longest:
            rule = f"of the model's context, {longest} tokens are left for a prompt: shorten it, or set max_new_tokens"
            raise _refuse(f"row {number} of all, with {len(ids)} tokens", rule)
    return found


def _encode(tokenizer: Any, prompt: Prompt) -> Sequence[int]:
    if prompt.messages:
        # The template writes the tokens that begin a text itself.
        text = tokenizer.apply_chat_template(prompt.messages, add_generation_prompt=True, tokenize=False)
        ids: Sequence[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
    return tokenizer(prompt.text)["input_ids"]  # type: ignore[no-any-return]


def _refuse(value: str, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem(_FIELD, value, rule))

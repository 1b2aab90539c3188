"""Loss of a model on rows that no training has seen, with the model that the harness has loaded.

The rows have the forms on which the frameworks train: `prompt` and `completion`, `messages`, or `text`. The loss is of
the tokens that a training learns: the completion, the turns of the assistant, or the whole text, with the token that
ends a text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.evaluation.scores import Score
from trainjob.frameworks.row_files import are_messages, describe_row, iterate_rows

__all__ = ["HELD_OUT", "Row", "RowLoss", "compute_losses", "divide_sums", "read_rows", "summarize_losses"]

HELD_OUT = "held_out"
"""Name before the metrics, as that of a task."""
_FORMS = "each row must have prompt and completion, messages with roles, or text"


@dataclass(frozen=True)
class Row:
    """A row: either a text after its context, or a conversation.

    Attributes:
        context: text before the part that is trained on.
        text: the part that is trained on.
        messages: messages of a conversation, in place of both.
        first: number of the first message that may be trained on.
    """

    context: str = ""
    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    first: int = 0


@dataclass(frozen=True)
class RowLoss:
    """The loss of a row.

    Attributes:
        loss: negative log-likelihood of the tokens, in nats.
        tokens: number of the tokens.
        bytes: length of their text in UTF-8, without what a chat template adds.
    """

    loss: float
    tokens: int
    bytes: int


def read_rows(path: Path, limit: int | None, *, chat_template: bool) -> list[Row]:
    """Return the rows of a file or of all files in a folder, in the order of their names.

    Args:
        path: a file in JSON Lines or Parquet, or a folder with such files.
        limit: number of rows; None for all.
        chat_template: whether prompts and completions are turns of a conversation.

    Raises:
        InvalidSpec: there are no rows, or one has another form.
    """
    numbered = itertools.islice(iterate_rows(path, HELD_OUT), limit)
    rows = [_parse_row(row, place, chat_template=chat_template) for place, row in numbered]
    if not rows:
        raise _refuse(str(path), "it must be a file in JSON Lines or Parquet with rows, or a folder with such files")
    return rows


def _parse_row(row: Any, place: str, *, chat_template: bool) -> Row:
    match row:
        case {"prompt": str(prompt), "completion": str(completion)} if chat_template:
            turns = {"user": prompt, "assistant": completion}
            return Row(messages=[{"role": role, "content": text} for role, text in turns.items()], first=1)
        case {"prompt": str(prompt), "completion": str(completion)}:
            return Row(prompt, completion)
        case {"prompt": [*prompts], "completion": [*completions]} if are_messages([*prompts, *completions]):
            return Row(messages=[*prompts, *completions], first=len(prompts))
        case {"messages": [*messages]} if are_messages(messages):
            return Row(messages=messages)
        case {"text": str(text)}:
            return Row(text=text)
    raise _refuse(place, f"{_FORMS}; it has {describe_row(row)}")


def compute_losses(model: Any, rows: Sequence[Row]) -> dict[str, RowLoss]:
    """Return the loss of each row by its number.

    Rows without a part that is trained on have none. A part that is longer than the model's context is divided. Each
    division has the tokens before it, as far as they fit.

    Args:
        model: model that the harness has loaded, a `lm_eval.models.huggingface.HFLM`.
        rows: the rows.

    Raises:
        InvalidSpec: the model's tokenizer has no chat template for conversations, or one that changes earlier turns; or
            no row has a part that is trained on.
    """
    requests: list[tuple[None, list[int], list[int]]] = []
    owners: list[int] = []
    counts = [[0.0, 0, 0] for _ in rows]
    for number, row in enumerate(rows):
        for context, text, content in _list_parts(model.tokenizer, row):
            before, tokens = _encode(model, context, text, is_rendered=bool(row.messages))
            counts[number][1] += len(tokens)
            counts[number][2] += len(content.encode())
            whole = before + tokens
            for start in range(len(before), len(whole), model.max_length):
                division = whole[start : start + model.max_length]
                first = max(0, start + len(division) - model.max_length - 1)
                requests.append((None, whole[first:start], division))
                owners.append(number)
    if not requests:
        raise _refuse("the rows", "at least one must have a completion, a turn of the assistant, or a text")
    # The public method takes texts, and does not say how many tokens they have (lm_eval 0.4.13).
    found = model._loglikelihood_tokens(requests)  # noqa: SLF001
    for number, (likelihood, _) in zip(owners, found, strict=True):
        counts[number][0] -= likelihood
    return {
        str(number): RowLoss(float(loss), int(tokens), int(size))
        for number, (loss, tokens, size) in enumerate(counts)
        if tokens
    }


def _list_parts(tokenizer: Any, row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield each part that is trained on: its context, the text, and the text without markup."""
    if not row.messages:
        yield row.context, row.text, row.text
        return
    if not tokenizer.chat_template:
        rule = "the rows are conversations, but the tokenizer in this folder has no chat template"
        raise _refuse(str(tokenizer.name_or_path), rule)

    def render(messages: Sequence[Mapping[str, Any]], *, is_open: bool) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=is_open))

    for number, message in enumerate(row.messages):
        if number >= row.first and message["role"] == "assistant":
            whole = render(row.messages[: number + 1], is_open=False)
            context = _find_context(render, row.messages[:number], whole)
            if context is None:
                rule = "the chat template in this folder changes earlier turns, so the assistant's can't be found"
                raise _refuse(str(tokenizer.name_or_path), rule)
            text, content = whole[len(context) :], message.get("content")
            yield context, text, content if isinstance(content, str) else text


def _find_context(render: Callable[..., str], messages: Sequence[Mapping[str, Any]], whole: str) -> str | None:
    """Return the text before the last turn of a conversation."""
    found = (render(messages, is_open=is_open) for is_open in (True, False)) if messages else iter([""])
    return next((context for context in found if whole.startswith(context)), None)


def _encode(model: Any, context: str, text: str, *, is_rendered: bool) -> tuple[list[int], list[int]]:
    """Return the tokens of the context and those of the text.

    As in trainings, both texts are encoded together. A text without a context comes after the token that begins a text,
    and a text without a chat template has the token that ends it.
    """
    special = False if is_rendered else None  # a chat template writes these tokens itself
    tokens = model.tok_encode(context + text, add_special_tokens=special)
    count = len(model.tok_encode(context, add_special_tokens=special))
    if not is_rendered and tokens[-1:] != [model.eot_token_id]:
        tokens.append(model.eot_token_id)
    if count == 0 and tokens[:1] != [model.prefix_token_id]:
        tokens.insert(0, model.prefix_token_id)
    count = max(count, 1)
    return tokens[:count], tokens[count:]


def summarize_losses(losses: Mapping[str, RowLoss]) -> dict[str, Score]:
    """Return loss by token and bits by byte; the second does not depend on the tokenizer."""
    nats = {row: [each.loss, each.tokens] for row, each in losses.items()}
    bits = {row: [each.loss / math.log(2), each.bytes] for row, each in losses.items()}
    return {"loss": _build_score(nats), "bits_per_byte": _build_score(bits)}


def divide_sums(items: Sequence[Sequence[float]]) -> float:
    """Return the sum of the first values of items, divided by the sum of the second ones."""
    values, weights = zip(*items, strict=True)
    return float(sum(values) / sum(weights))


def _build_score(rows: Mapping[str, Sequence[float]]) -> Score:
    """Return the ratio of the sums, with its standard error.

    The error is that of a ratio estimator, by linearization (Cochran, Sampling Techniques, 1977, section 6.4).
    """
    count, weight = len(rows), sum(weight for _, weight in rows.values())
    if not weight or not math.isfinite(ratio := divide_sums([*rows.values()])):
        return Score(math.nan, None, higher_is_better=False)
    squares = sum((value - ratio * weight) ** 2 for value, weight in rows.values())
    stderr = math.sqrt(squares * count / (count - 1)) / weight if count > 1 else None
    return Score(ratio, stderr, higher_is_better=False, rows=rows, is_mean=False)


def _refuse(value: str, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem(HELD_OUT, value, rule))

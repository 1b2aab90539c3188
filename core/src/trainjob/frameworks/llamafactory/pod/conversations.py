"""Rows of a dataset as the messages that LLaMA-Factory's processors expect.

A processor gets a prompt, which is an odd number of messages that ends with one of the user, and the responses
(llamafactory 0.9.5, data/processor). It drops a row with another number of messages, and logs a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.row_rules import find_missing_value

__all__ = ["convert_row", "find_row_problem"]

_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant", "system": "system"}

Message = dict[str, str]


def convert_row(row: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return prompt, responses and system message of a row under LLaMA-Factory's names.

    Args:
        row: values of the row by the method's names of columns. A value is a text, or a conversation: a list of
            messages with `role` and `content`, or with `from` and `value`.
        method: the method.

    Raises:
        InvalidSpec: a message has another role or no content.
    """
    prompt, responses = _CONVERSIONS[method](row)
    system = str(row.get("system") or "")
    if prompt and prompt[0]["role"] == "system":
        system, prompt = prompt[0]["content"], prompt[1:]
    return {
        "_prompt": prompt,
        "_response": responses,
        "_system": system,
        "_tools": "",
        "_images": None,
        "_videos": None,
        "_audios": None,
    }


def find_row_problem(row: Mapping[str, Any], columns: Collection[str], method: str) -> tuple[str, str] | None:
    """Return the column of a row that cannot be converted, and the rule that it breaks.

    Args:
        row: values of the row by the method's names of columns.
        columns: the columns that the method reads.
        method: the method.

    Returns:
        None if the row can be used.
    """
    for name in columns:
        if rule := find_missing_value(name, row.get(name)):
            return name, rule
    try:
        convert_row(row, method)
    except InvalidSpec as refusal:
        [problem] = refusal.problems
        return " or ".join(columns), f"{problem.value}: {problem.allowed}"
    return None


def _convert_text(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    return _to_messages(row["text"], "user"), []


def _convert_answer(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    whole = row.get("messages") or row.get("conversations")
    messages = _to_messages(whole, "user") if whole else [*_read_prompt(row), *_read_answer(row, "completion")]
    return messages[:-1], messages[-1:]


def _convert_pair(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """Return the prompt and both answers.

    Without a column `prompt`, the prompt is all but the last message of the chosen conversation.
    """
    chosen, rejected = _read_answer(row, "chosen"), _read_answer(row, "rejected")
    prompt = _read_prompt(row) if row.get("prompt") else chosen[:-1]
    return prompt, [*chosen[-1:], *rejected[-1:]]


def _convert_judged_answer(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """Return the prompt, the good answer and the bad answer.

    LLaMA-Factory represents a row with one answer by an empty other one (llamafactory 0.9.5, data/converter.py).
    """
    answer, empty = _read_answer(row, "completion")[-1:], [{"role": "assistant", "content": ""}]
    return _read_prompt(row), [*answer, *empty] if row["label"] else [*empty, *answer]


_CONVERSIONS = {
    "pt": _convert_text,
    "sft": _convert_answer,
    "dpo": _convert_pair,
    "kto": _convert_judged_answer,
}


def _read_prompt(row: Mapping[str, Any]) -> list[Message]:
    """Return the prompt, with the column `query` on the next line if the row has it."""
    prompt, query = row["prompt"], row.get("query")
    return _to_messages(f"{prompt}\n{query}" if query else prompt, "user")


def _read_answer(row: Mapping[str, Any], column: str) -> list[Message]:
    return _to_messages(row[column], "assistant")


def _to_messages(value: Any, role: str) -> list[Message]:
    """Return a conversation as messages; a text is one message of a role.

    Raises:
        InvalidSpec: the value is null, or a message has another role or no content.
    """
    if value is None:
        raise InvalidSpec(Problem("dataset_path", "null", "a value is a text or a conversation"))
    if not isinstance(value, list):
        return [{"role": role, "content": str(value)}]
    return [_to_message(each) for each in value]


def _to_message(message: Mapping[str, Any]) -> Message:
    role, content = message.get("role", message.get("from")), message.get("content", message.get("value"))
    if role not in _ROLES or not isinstance(content, str):
        rule = f"a message has one of the roles {', '.join(_ROLES)}, and a text as its content"
        raise InvalidSpec(Problem("dataset_path", f"a message of the role {role!r}", rule))
    return {"role": _ROLES[role], "content": content}

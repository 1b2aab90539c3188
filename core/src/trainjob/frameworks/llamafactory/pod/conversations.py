"""Rows of a dataset as the messages that LLaMA-Factory's processors expect.

A processor gets a prompt, which is an odd number of messages that ends with one of the user, and the responses
(llamafactory 0.9.5, data/processor). It drops a row with another number of messages, and logs a warning. So a row whose
conversation does not end with an answer gets no response.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.row_rules import find_missing_value, find_value_problem

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
        InvalidSpec: a value is neither a text nor a conversation, or a message has another role or no content.
    """
    prompt, responses = _CONVERSIONS[method](row)
    system = str(row.get("system") or "")
    if prompt and prompt[0]["role"] == "system":
        system, prompt = prompt[0]["content"], prompt[1:]
    tools = row.get("tools") or ""
    return {
        "_prompt": prompt,
        "_response": responses,
        "_system": system,
        "_tools": tools if isinstance(tools, str) else json.dumps(tools),
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
        value = row.get(name)
        is_value = isinstance(value, list | str)  # others become texts
        if rule := find_missing_value(name, value) or (find_value_problem(name, value) if is_value else ""):
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
    whole = row.get("messages", row.get("conversations"))
    if whole is None:
        return _split_answer([*_read_prompt(row), *_read_answer(row, "completion")])
    return _split_answer(_to_messages(whole, "user"))


def _convert_pair(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """Return the prompt and both answers.

    Without a column `prompt`, the prompt is all but the last message of the chosen conversation.
    """
    start, chosen = _split_answer(_read_answer(row, "chosen"))
    _, rejected = _split_answer(_read_answer(row, "rejected"))
    return _read_prompt(row) if row.get("prompt") else start, [*chosen, *rejected]


def _convert_judged_answer(row: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """Return the prompt, the good answer and the bad answer.

    LLaMA-Factory represents a row with one answer by an empty other one (llamafactory 0.9.5, data/converter.py).
    """
    _, answer = _split_answer(_read_answer(row, "completion"))
    empty = [{"role": "assistant", "content": ""}]
    return _read_prompt(row), [*answer, *empty] if row["label"] else [*empty, *answer]


_CONVERSIONS = {
    "pt": _convert_text,
    "sft": _convert_answer,
    "dpo": _convert_pair,
    "kto": _convert_judged_answer,
}


def _split_answer(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return the messages before the answer, and the answer.

    If the last message is not the assistant's, all are before the answer.
    """
    has_answer = bool(messages) and messages[-1]["role"] == "assistant"
    return (messages[:-1], messages[-1:]) if has_answer else (messages, [])


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

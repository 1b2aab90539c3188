"""Rules for one row of a dataset: what crashes in a training, and what trains something else than meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["find_missing_value", "find_problem", "find_value_problem", "find_warning", "is_conversation"]

_TOKENS = ("input_ids", "chosen_ids", "rejected_ids")
_CONVERSATIONS = ("messages", "conversations")
_LABEL = "label"
_ANSWERS = ("assistant", "gpt", "model", "chatgpt")


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages."""
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def find_problem(row: Mapping[str, Any], columns: Collection[str]) -> tuple[str, str] | None:
    """Return the column with which a training would crash, and the rule that it breaks.

    Args:
        row: values of the row by the method's names of columns.
        columns: the columns that the method reads.

    Returns:
        None if the row can be used.
    """
    forms = set()
    for name in columns:
        value = row.get(name)
        if rule := find_missing_value(name, value):
            return name, rule
        if name in (*_TOKENS, _LABEL):
            continue
        if rule := find_value_problem(name, value) or _find_missing_role(name, value):
            return name, rule
        forms.add(isinstance(value, str))
    if len(forms) > 1:
        return min(columns), f"{' and '.join(sorted(columns))} must all be texts, or all conversations"
    return None


def find_missing_value(name: str, value: Any) -> str:
    """Return the rule that a missing value or a label breaks; empty if it breaks none.

    Args:
        name: the method's name of the column.
        value: the value.
    """
    if value is None:
        return "the value is missing or null: remove the row, or fill the cell"
    if name == _LABEL and not (isinstance(value, bool) or value in (0, 1)):
        return f"{_show(value)} is not a label: it must be true or false, and not a text"
    return ""


def find_warning(row: Mapping[str, Any], columns: Collection[str]) -> str:
    """Return what a usable row teaches unexpectedly; empty if nothing."""
    for name in columns:
        value = row[name]
        if not is_conversation(value):
            continue
        if any(_get(message, "content", "value") is None and not message.get("tool_calls") for message in value):
            return "a message without content"
        if name in _CONVERSATIONS and not any(_get(message, "role", "from") in _ANSWERS for message in value):
            return "a conversation without an answer of the assistant"
    return ""


def find_value_problem(name: str, value: Any) -> str:
    """Return the rule that a value breaks; empty if it is a text or a conversation.

    Args:
        name: the method's name of the column.
        value: the value.
    """
    if isinstance(value, str):
        if name in _CONVERSATIONS:
            looks_like_json = value.lstrip().startswith(("[", "{"))
            advice = "it contains JSON text: store the list itself" if looks_like_json else "it is a text"
            return f"it must be a list of messages, but {advice}"
        return ""
    if not is_conversation(value):
        kind = {int: "a number", float: "a number", bool: "a truth value", list: "a list"}.get(type(value), "an object")
        return f"it must be a text or a list of messages, but is {kind}: {_show(value)}"
    return "" if value else "the conversation has no messages"


def _find_missing_role(name: str, value: Any) -> str:
    for message in value if is_conversation(value) else ():
        # Trainers convert only the column `conversations`.
        if message.get("role") is None and (name != "conversations" or message.get("from") is None):
            advice = "; with from and value, the column must be conversations" if "from" in message else ""
            return f"a message has no role; it has {', '.join(message)}{advice}"
    return ""


def _get(message: Mapping[str, Any], name: str, other: str) -> Any:
    value = message.get(name)
    return message.get(other) if value is None else value


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

"""Recognition of templates whose placeholders have not been replaced."""

from __future__ import annotations

import re
from typing import Any

# ${NAME} and $NAME of shells and envsubst, {{ NAME }} of Helm and Jinja, <text> of examples.
_PLACEHOLDER = re.compile(r"\$\{[\w.]+\}|\{\{.*?\}\}|\$\w+|<[^<>\n]+>")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")


def find_placeholders(value: Any) -> list[str]:
    """Return the placeholders in a value."""
    return _PLACEHOLDER.findall(value) if isinstance(value, str) else []


def describe_template(text: str, first_line: int) -> str:
    """Return the advice to render a text that is no YAML, as the end of a reason.

    Args:
        text: the text.
        first_line: number of its first line.

    Returns:
        The advice; empty if the text has no mark of a template.
    """
    if not (found := _TEMPLATE.search(text)):
        return ""
    line = first_line + text.count("\n", 0, found.start())
    return f"; {found[0]} in line {line} seems to be a placeholder: render the template first"

"""Recognition of templates whose placeholders have not been replaced."""

from __future__ import annotations

import re
from typing import Any

# ${NAME} and $NAME of shells and envsubst, {{ NAME }} of Helm and Jinja, <text> of examples.
_PLACEHOLDER = re.compile(r"\$\{[\w.]+\}|\{\{.*?\}\}|\$\w+|<[^<>\n]+>")


def find_placeholders(value: Any) -> list[str]:
    """Return the placeholders in a value."""
    return _PLACEHOLDER.findall(value) if isinstance(value, str) else []


def describe_placeholder(value: Any) -> str:
    """Return the advice to replace a placeholder, as the end of a reason.

    The result is empty if the value contains no placeholder.
    """
    found = find_placeholders(value)
    return f"; {found[0]} seems to be a placeholder: replace it before the conversion" if found else ""

"""Recognition of templates whose placeholders have not been replaced."""

from __future__ import annotations

import re
from typing import Any

# ${NAME} and $NAME of shells and envsubst, {{ NAME }} of Helm and Jinja, <NAME>.
_PLACEHOLDER = re.compile(r"\$\{[\w.]+\}|\{\{.*\}\}|\$\w+|<[\w -]+>")


def describe_placeholder(value: Any) -> str:
    """Return the advice to replace a placeholder, as the end of a reason.

    The result is empty if the value contains no placeholder.
    """
    found = _PLACEHOLDER.search(value) if isinstance(value, str) else None
    return f"; {found[0]} seems to be a placeholder: replace it before the conversion" if found else ""

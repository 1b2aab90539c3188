"""Text of generated docstrings, in lines of at most 120 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

_WIDTH = 120


def wrap_paragraphs(text: str) -> str:
    """Return the paragraphs of a docstring that is indented by four spaces."""
    return "\n\n".join(textwrap.fill(each, _WIDTH - 4, break_on_hyphens=False) for each in text.split("\n\n"))


def format_entries(described: Mapping[str, str], indent: int) -> str:
    """Return the entries of a section such as `Args`, indented by four spaces.

    Args:
        described: text of each entry by its name.
        indent: number of spaces before the docstring.
    """
    entries = (
        textwrap.fill(
            f"{name}: {text}",
            _WIDTH - indent - 4,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, text in described.items()
    )
    return textwrap.indent("\n".join(entries), "    ")

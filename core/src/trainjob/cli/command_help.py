"""Help texts of the commands, taken from the docstrings of their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["format_help"]


def format_help(command: Callable[..., Any]) -> str:
    """Return the docstring of a command's function as the text of its `--help`.

    Each paragraph becomes one line, which typer wraps to the width of the terminal.
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

"""Help texts of the commands, taken from the docstrings of their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

__all__ = ["add_command", "format_help"]


def add_command(group: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Add a function as a command to a group; its docstring is the text of its `--help`."""
    group.command(name, help=format_help(command))(command)


def format_help(command: Callable[..., Any]) -> str:
    """Return the docstring of a command's function as the text of its `--help`.

    Each paragraph becomes one line, which typer wraps to the width of the terminal.
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

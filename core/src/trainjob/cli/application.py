"""The tree of commands."""

from __future__ import annotations

import typer

from trainjob.cli import local

__all__ = ["application"]


def application() -> typer.Typer:
    """Builds the command with all its subcommands."""
    command = typer.Typer(name="trainjob", help="Kubeflow Trainer jobs as workflow steps.", no_args_is_help=True)
    command.callback()(_root)
    command.add_typer(local.commands(), name="local")
    return command


def _root() -> None:
    """Kubeflow Trainer jobs as workflow steps."""

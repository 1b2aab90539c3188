"""The tree of commands. Each is imported when it is called, as all of them together take half a second."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trainjob.cli import terminal

__all__ = ["application"]

_KUBECONFIG = typer.Option(help="Kubeconfig file; KUBECONFIG, then ~/.kube/config, by default.", show_default=False)
_CONTEXT = typer.Option(help="The kubeconfig's context; its current one by default.", show_default=False)
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in terminal.EXIT_CODES.items()) + "."

# Module of this package and function in it, or the function `commands` that builds a group; and what the help says.
_COMMANDS = {
    "run": ("run", "run", "Make the TrainJobs of a file, one after the other, and follow them."),
    "submit": ("submit", "submit", "Make the TrainJobs of a file, and print their names."),
    "wait": ("wait", "wait", "Wait until TrainJobs have ended."),
    "logs": ("logs", "logs", "Print the logs of a TrainJob, of all ranks."),
    "cancel": ("cancel", "cancel", "Delete TrainJobs that have not ended."),
    "suspend": ("cancel", "suspend", "Suspend TrainJobs."),
    "resume": ("cancel", "resume", "Let suspended TrainJobs go on."),
    "list": ("listing", "list_trainjobs", "List TrainJobs, the newest first."),
    "watch": ("watch", "watch", "Show how TrainJobs get on, live."),
    "describe": ("describe", "describe", "Tell all about one TrainJob."),
    "export": ("export", "export", "Send the model that a fine-tuning has left where it is wanted."),
    "runtimes": ("runtimes", "runtimes", "List the training runtimes, or describe one."),
    "check": ("check", "check", "Say what works for TrainJobs in a namespace, and what to fix."),
    "sweep": ("sweep", "sweep", "Delete the TrainJobs whose time to live is over."),
    "migrate": ("migrate", "commands", "From jobs of the Training Operator v1 to TrainJobs."),
    "local": ("local", "commands", "A Kubernetes cluster with Kubeflow Trainer on this machine, without containers."),
}


class _Tree(TyperGroup):
    """Knows the commands' names and help, and loads the one that is called, or completed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _loaded(name) if name else None, rest


def application() -> typer.Typer:
    """Builds the command with all its subcommands."""
    command = typer.Typer(
        name="trainjob",
        cls=_Tree,
        help="Kubeflow Trainer jobs from the command line.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # they show local variables, which may hold secrets
    )
    command.callback()(_root)
    for name, (_, _, help_text) in _COMMANDS.items():
        command.command(name, help=help_text)(_placeholder)
    return command


def _loaded(name: str) -> Any:
    module, function, help_text = _COMMANDS[name]
    found: Callable[..., Any] = getattr(importlib.import_module(f"trainjob.cli.{module}"), function)
    parent = typer.Typer(add_completion=False)
    parent.callback()(_placeholder)
    if function == "commands":
        parent.add_typer(found(), name=name)
    else:
        parent.command(name, help=help_text)(found)
    group: Any = get_command(parent)
    return group.commands[name]


def _placeholder() -> None:
    """Stands for a command until it is called."""


def _root(
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
) -> None:
    """Kubeflow Trainer jobs from the command line."""
    from trainjob.cluster import Connection

    terminal.use(Connection(kubeconfig=str(kubeconfig or ""), context=context))

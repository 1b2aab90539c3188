"""The tree of commands.

A command's module is imported when the command is called, because all of them together take half a second. Other
distributions add commands with entry points of the group `trainjob.commands`: the name is the command's, the object a
function that returns a `typer.Typer`, and the distribution's summary is the line in `trainjob --help`. A Typer with a
callback or several commands is a group; one with a single command of the entry point's name is that command.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trainjob.cli import terminal
from trainjob.cli.command_help import add_command
from trainjob.installation import INSTALLATION_PAGE

__all__ = ["application"]

_KUBECONFIG = typer.Option(help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config.", show_default=False)
_CONTEXT = typer.Option(help="Context of the kubeconfig. Default: its current context.", show_default=False)
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in terminal.EXIT_CODES.items()) + "."

_SUMMARY = "Submit, follow and manage Kubeflow TrainJobs."
# Module of this package, function in it, and line in `trainjob --help`: the first line of the function's docstring.
_COMMANDS = {
    "run": ("run", "run", "Create the TrainJobs of a file one by one, and follow each until it has ended."),
    "dev": ("dev", "dev", "Run a training of a project again after each change of its files, until Ctrl-C."),
    "submit": ("submit", "submit", "Create the TrainJobs of a file, and print their names."),
    "pack": ("pack", "pack", "Show what travels to the pods of a project's code, or write it into an archive."),
    "wait": ("wait", "wait", "Wait until TrainJobs have ended."),
    "logs": ("logs", "logs", "Print the logs of a TrainJob, of all steps and ranks."),
    "cancel": ("cancel", "cancel", "Delete TrainJobs that have not ended, with their pods."),
    "suspend": ("cancel", "suspend", "Suspend TrainJobs and delete their pods."),
    "resume": ("cancel", "resume", "Resume suspended TrainJobs."),
    "list": ("listing", "list_trainjobs", "List TrainJobs with their phases, newest first."),
    "watch": ("watch", "watch", "Show the phases and the progress of TrainJobs, live."),
    "describe": ("describe", "describe", "Show the details of one TrainJob, and what to do if it has a problem."),
    "cost": ("cost", "cost", "Show the pod hours and GPU hours of TrainJobs."),
    "export": ("export", "export", "Export the model of a fine-tuning to a bucket, the Hugging Face Hub or a folder."),
    "runtimes": (
        "runtimes",
        "runtimes",
        "List the training runtimes that a TrainJob can use, or describe one of them.",
    ),
    "check": ("check", "check", "Check whether TrainJobs can run in a namespace, and report what to fix."),
    "sweep": ("sweep", "sweep", "Delete finished TrainJobs whose time to live has expired."),
}
_ENTRY_POINTS = "trainjob.commands"
# This project's commands in other distributions: distribution, which an error names if it is not installed, and line in
# `trainjob --help`.
_COMMANDS_ELSEWHERE = {
    "airflow": ("trainjob-demo", "Run Airflow with its UI and a laptop cluster on this machine, until Ctrl-C."),
    "demo": (
        "trainjob-demo",
        "Fine-tune and export a tiny model with Airflow or Kubeflow Pipelines, on this machine.",
    ),
    "local": ("trainjob-local", "Run a Kubernetes cluster with Kubeflow Trainer on this machine, without containers."),
    "migrate": (
        "trainjob-migrate",
        "Convert jobs of the Training Operator v1 (PyTorchJob, MPIJob, XGBoostJob, JAXJob) to TrainJobs.",
    ),
}


class _LazyGroup(TyperGroup):
    """Command group that imports a command only when it is called or completed.

    It has the names and the first help lines of all commands without importing them.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_find_plugin_commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = super().get_command(ctx, cmd_name)
        if known or not (added := _find_plugin_commands().get(cmd_name)):
            return known
        _, summary = _COMMANDS_ELSEWHERE.get(cmd_name) or ("", added.dist.metadata["Summary"] if added.dist else "")
        return _build_command(cmd_name, lambda parent: parent.command(cmd_name, help=summary)(_placeholder))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        distribution, _ = _COMMANDS_ELSEWHERE.get(args[0], ("", ""))
        if distribution and args[0] not in _find_plugin_commands() and not ctx.resilient_parsing:
            ctx.fail(f"'{args[0]}' needs the package {distribution}: {INSTALLATION_PAGE}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load_command(name) if name else None, rest


def application() -> typer.Typer:
    """Return the command with all its subcommands."""
    command = typer.Typer(
        name="trainjob",
        cls=_LazyGroup,
        help=_SUMMARY,
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # they show local variables, which may contain secrets
    )
    command.callback()(_root)
    for name, (_, _, help_text) in _COMMANDS.items():
        command.command(name, help=help_text)(_placeholder)
    return command


@functools.cache
def _find_plugin_commands() -> dict[str, EntryPoint]:
    """Return the commands that other installed distributions add, by their names."""
    return {found.name: found for found in entry_points(group=_ENTRY_POINTS) if found.name not in _COMMANDS}


def _load_command(name: str) -> Any:
    if name not in _COMMANDS:
        return _build_command(name, lambda parent: _add_plugin(parent, name, _find_plugin_commands()[name].load()()))
    module, function, _ = _COMMANDS[name]
    found = getattr(importlib.import_module(f"trainjob.cli.{module}"), function)
    return _build_command(name, lambda parent: add_command(parent, name, found))


def _add_plugin(parent: typer.Typer, name: str, added: typer.Typer) -> None:
    if added.registered_callback or len(added.registered_commands) > 1:
        parent.add_typer(added, name=name)
    else:
        parent.registered_commands.extend(added.registered_commands)


def _build_command(name: str, add: Callable[[typer.Typer], object]) -> Any:
    """Return the command of this name that `add` adds to an application."""
    parent = typer.Typer(add_completion=False)
    parent.callback()(_placeholder)
    add(parent)
    group: Any = get_command(parent)
    return group.commands[name]


def _placeholder() -> None:
    """Do nothing; replaces a command until it is called."""


def _print_versions(context: typer.Context, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from trainjob.cli.version import format_versions

        print(format_versions())
        raise typer.Exit


_VERSION = typer.Option(
    "--version",
    callback=_print_versions,
    is_eager=True,
    help="Print the versions of the installed packages of this project.",
    show_default=False,
)


def _root(
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    _version: Annotated[bool, _VERSION] = False,
) -> None:
    """Set the cluster that the command uses."""
    from trainjob.client import Connection

    terminal.set_connection(Connection(kubeconfig=str(kubeconfig or ""), context=context))

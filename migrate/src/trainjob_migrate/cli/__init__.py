"""`trainjob migrate`: commands that convert Training Operator v1 jobs to TrainJobs."""

from __future__ import annotations

import typer

from trainjob.cli.command_help import format_help
from trainjob_migrate.cli.compare import compare
from trainjob_migrate.cli.convert import convert
from trainjob_migrate.cli.diff import diff
from trainjob_migrate.cli.report import report
from trainjob_migrate.cli.trial import trial

__all__ = ["commands"]


def commands() -> typer.Typer:
    """Build the Typer group with the subcommands."""
    group = typer.Typer(
        help="Convert jobs of the Training Operator v1 (PyTorchJob, MPIJob, XGBoostJob, JAXJob) to TrainJobs."
    )
    group.command("convert", help=format_help(convert))(convert)
    group.command("report", help=format_help(report))(report)
    group.command("diff", help=format_help(diff))(diff)
    group.command("test", help=format_help(trial))(trial)
    group.command("compare", help=format_help(compare))(compare)
    return group

"""`trainjob migrate`: commands that convert Training Operator v1 jobs to TrainJobs."""

from __future__ import annotations

import typer

from trainjob.cli.command_help import add_command
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
    add_command(group, "convert", convert)
    add_command(group, "report", report)
    add_command(group, "diff", diff)
    add_command(group, "test", trial)
    add_command(group, "compare", compare)
    return group

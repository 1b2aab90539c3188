"""`trainjob migrate`: commands that convert Training Operator v1 jobs to TrainJobs."""

from __future__ import annotations

import typer

from trainjob_migrate.cli.compare import compare
from trainjob_migrate.cli.convert import convert
from trainjob_migrate.cli.diff import diff
from trainjob_migrate.cli.report import report
from trainjob_migrate.cli.trial import trial

__all__ = ["commands"]


def commands() -> typer.Typer:
    """Build the Typer group with the subcommands."""
    group = typer.Typer(
        help="From jobs of the Training Operator v1 (PyTorchJob, MPIJob, XGBoostJob, JAXJob) to TrainJobs."
    )
    group.command("convert", help="Write the TrainJobs for files, or for what runs on a cluster.")(convert)
    group.command("report", help="Tell what becomes of every field, and how ready all of it is.")(report)
    group.command("diff", help="Show the fields of old and new jobs side by side.")(diff)
    group.command("test", help="Run one job, converted, under another name, and delete it again.")(trial)
    group.command("compare", help="Show a v1 job and a TrainJob of a cluster next to each other.")(compare)
    return group

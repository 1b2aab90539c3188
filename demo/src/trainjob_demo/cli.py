"""The command `trainjob demo`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli.command_help import add_command

__all__ = ["commands"]


class EngineName(str, Enum):
    """Workflow engines of the demo."""

    AIRFLOW = "airflow"
    KFP = "kfp"


class FrameworkName(str, Enum):
    """Training frameworks of the demo."""

    TORCHTUNE = "torchtune"
    TRL = "trl"


_ENGINE = typer.Option(help="Engine that runs the chain: an Airflow DAG, or a Kubeflow pipeline.")
_FRAMEWORK = typer.Option(help="Framework that trains the model.")
_WORKFLOW = typer.Option(
    metavar="FILE",
    help="DAG or pipeline to run instead of the demo's, such as a changed copy of it. A DAG has the name of its file, "
    "and Airflow loads all files of its folder.",
    show_default=False,
)
_ENVIRONMENT = typer.Option(
    "--environment",
    metavar="NAME=DIR",
    help="Existing Python environment to use; NAME is initializer, torchtune, trl, airflow or kfp. May be repeated.",
)
_STATE = typer.Option(
    metavar="DIR",
    help="Folder for the cluster, Airflow's database and the logs. Default: ~/.cache/trainjob/demo.",
    show_default=False,
)


def commands() -> typer.Typer:
    """Return the Typer application with the command."""
    application = typer.Typer(add_completion=False)
    add_command(application, "demo", demo)
    return application


def demo(
    engine: Annotated[EngineName, _ENGINE] = EngineName.AIRFLOW,
    framework: Annotated[FrameworkName, _FRAMEWORK] = FrameworkName.TORCHTUNE,
    workflow: Annotated[Path | None, _WORKFLOW] = None,
    environment: Annotated[list[str] | None, _ENVIRONMENT] = None,
    state: Annotated[Path | None, _STATE] = None,
) -> None:
    """Fine-tune and export a tiny model with Airflow or Kubeflow Pipelines, on this machine.

    The demo starts a laptop cluster and the workflow engine, and shows the progress of the TrainJobs. It scores the
    model before and after the training. The first run creates the Python environments that are missing. It announces
    their size before it downloads them. At the end, also after Ctrl-C, all processes of the demo are stopped.

    Example: trainjob demo --engine kfp --framework trl
    """
    from trainjob_demo.environments import open_environments, parse_environments, select_locks
    from trainjob_demo.paths import default_folder, exclusive_lock, find_workflow
    from trainjob_demo.processes import ensure_user_name
    from trainjob_demo.runner import handle_signals, run_demo

    handle_signals()
    ensure_user_name()
    folder = (state or default_folder()).absolute()
    file = workflow and find_workflow(workflow)
    locks, existing = select_locks(engine.value, framework.value), parse_environments(environment or [])
    with exclusive_lock(folder, engine.value), open_environments(locks, existing) as environments:
        run_demo(engine.value, framework.value, environments, folder, file)

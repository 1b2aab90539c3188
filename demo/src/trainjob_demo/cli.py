"""The commands `trainjob demo` and `trainjob airflow`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli.command_help import add_command

__all__ = ["airflow_command", "demo_command"]


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
    help="Existing Python environment to use; NAME is initializer, torchtune, trl, llamafactory, runtimes, airflow or "
    "kfp. May be repeated.",
)
_STATE = typer.Option(
    metavar="DIR",
    help="Folder for the cluster, Airflow's database and the logs. Default: a folder with the name of the command in "
    "~/.cache/trainjob.",
    show_default=False,
)
_DAGS = typer.Argument(metavar="DAGS", help="Folder of the DAGs.", show_default=False)
_PORT = typer.Option(help="TCP port of Airflow's UI on 127.0.0.1.")
_DEMO_HUB = typer.Option(
    "--demo-hub",
    help="Fetch from a Hub on this machine instead of the Hugging Face Hub. It has only hf://demo/tiny-llama and "
    "hf://demo/tickets, which the examples use.",
)


def demo_command() -> typer.Typer:
    """Return the Typer application with the command `trainjob demo`."""
    application = typer.Typer(add_completion=False)
    add_command(application, "demo", demo)
    return application


def airflow_command() -> typer.Typer:
    """Return the Typer application with the command `trainjob airflow`."""
    application = typer.Typer(add_completion=False)
    add_command(application, "airflow", airflow)
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
    folder = (state or default_folder("demo")).absolute()
    file = workflow and find_workflow(workflow)
    names = ("initializer", framework.value, engine.value)
    locks, existing = select_locks(names), parse_environments(environment or [])
    with exclusive_lock(folder, engine.value), open_environments(locks, existing) as environments:
        run_demo(engine.value, framework.value, environments, folder, file)


def airflow(
    dags: Annotated[Path, _DAGS],
    port: Annotated[int, _PORT] = 8080,
    demo_hub: Annotated[bool, _DEMO_HUB] = False,
    environment: Annotated[list[str] | None, _ENVIRONMENT] = None,
    state: Annotated[Path | None, _STATE] = None,
) -> None:
    """Run Airflow with its UI and a laptop cluster on this machine, until Ctrl-C.

    The command starts a laptop cluster, Airflow's API server, scheduler, triggerer and DAG processor, and prints the
    address and the password of the UI. The connection `kubernetes_default` is the laptop cluster. The first run
    creates the Python environment of Airflow; the first TrainJobs create those of their images. DAG runs, TrainJobs and
    volumes remain for the next start.

    Example: trainjob airflow ~/dags
    """
    import contextlib

    from trainjob_demo.environments import open_environments, parse_environments, select_locks
    from trainjob_demo.paths import default_folder, exclusive_lock, find_folder
    from trainjob_demo.processes import ensure_user_name
    from trainjob_demo.runner import handle_signals
    from trainjob_demo.standalone_airflow import HUB_ENVIRONMENT, run_standalone_airflow

    handle_signals()
    ensure_user_name()
    dags = find_folder(dags)
    folder = (state or default_folder("airflow")).absolute()
    names = ("airflow", HUB_ENVIRONMENT) if demo_hub else ("airflow",)
    locks, existing = select_locks(names), parse_environments(environment or [])
    with (
        contextlib.suppress(KeyboardInterrupt),
        exclusive_lock(folder, "airflow"),
        open_environments(locks, existing) as environments,
    ):
        run_standalone_airflow(environments, folder, dags, port, demo_hub=demo_hub)

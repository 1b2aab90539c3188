"""`trainjob run`: create TrainJobs one by one, and follow each until it has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import request_file, terminal
from trainjob.cli.follow import follow
from trainjob.cli.interruption import Interrupted
from trainjob.cli.runtime_files import APPLY_RUNTIMES, create_runtimes
from trainjob.cli.submit import DIALECT, OUTPUT, Output, preview_file, print_manifests
from trainjob.manifest import Dialect
from trainjob.status import Outcome

__all__ = ["run"]

_INTERRUPTION_RETRIES = typer.Option(
    min=0,
    help="How often another attempt starts after the infrastructure has interrupted a TrainJob, for example by an "
    "eviction, a preemption or a drain; by default `interruption_retries` of the request, which is 3.",
)


def run(
    file: Annotated[str, request_file.FILE],
    namespace: Annotated[str, request_file.NAMESPACE] = "",
    name: Annotated[str, request_file.NAME] = "",
    run_id: Annotated[str, request_file.RUN_ID] = "",
    apply_runtimes: Annotated[bool, APPLY_RUNTIMES] = False,
    interruption_retries: Annotated[int | None, _INTERRUPTION_RETRIES] = None,
    output: Annotated[Output | None, OUTPUT] = None,
    dialect: Annotated[Dialect | None, DIALECT] = None,
    keep_colors: Annotated[bool, terminal.KEEP_COLORS] = False,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Create the TrainJobs of a file one by one, and follow each until it has ended.

    The command prints phases, log lines and progress. Training runtimes of the file are created first; one that exists
    stays unchanged if it is equal. It stops at the first TrainJob that fails, and does not create
    the remaining ones. Ctrl-C or SIGTERM deletes the active TrainJob, or applies its `on_kill` action; a second signal
    leaves it as it is. If the command is killed, or the program that reads its output ends, the TrainJob continues.
    Running the same command again adopts it.

    With --json: a list of outcomes, in the order of the file; progress is on standard error.

    Example: trainjob run tickets.yaml --run-id monday
    """
    content = request_file.read_file(file, name, run_id)
    if output or dialect:
        print_manifests([*content.runtimes, *preview_file(content, namespace, dialect)], output)
        return
    outcomes: list[Outcome] = []
    console = terminal.error_console() if as_json else terminal.console()
    try:
        with terminal.open_cluster() as cluster:
            create_runtimes(cluster, content.runtimes, namespace, file, replace=apply_runtimes)
            for request in content.requests:
                outcome = follow(
                    cluster,
                    request,
                    namespace,
                    console,
                    interruption_retries=interruption_retries,
                    keep_colors=keep_colors,
                )
                outcomes.append(outcome)
                if not outcomes[-1].succeeded:
                    break
    except Interrupted as stopped:
        raise typer.Exit(stopped.exit_code) from None
    finally:
        if as_json:
            terminal.print_json([outcome.to_dict() for outcome in outcomes])
    outcomes[-1].raise_for_failure()

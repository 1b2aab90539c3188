"""`trainjob run`: create TrainJobs one by one, and follow each until it has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import completion, request_file, terminal
from trainjob.cli.follow import follow
from trainjob.cli.interruption import Interrupted
from trainjob.cli.submit import DIALECT, OUTPUT, Output, preview_requests
from trainjob.manifest import Dialect
from trainjob.status import Outcome

__all__ = ["run"]


def run(
    file: Annotated[str, request_file.FILE],
    namespace: Annotated[str, completion.NAMESPACE] = "",
    name: Annotated[str, request_file.NAME] = "",
    run_id: Annotated[str, request_file.RUN_ID] = "",
    output: Annotated[Output | None, OUTPUT] = None,
    dialect: Annotated[Dialect | None, DIALECT] = None,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Have the TrainJobs of a file made, one after the other, and follow each to its end: phases, logs, progress.

    One that fails ends it, and those behind it are not made. Ctrl-C (and SIGTERM) deletes the one at work, or does what
    its `on_kill` says; a second one leaves it as it is. When the command is killed, or the reader of its output goes
    away, the TrainJob goes on, and the same command takes it over again.

    `--json` prints a list of outcomes, in the file's order, and tells the rest on standard error.

    Args:
        file: its path; `-` for standard input.
        namespace: where; empty means the file's own, then the kubeconfig's.
        name: begins the TrainJob's name, where the file has one document.
        run_id: what they belong to: with the same one again, those that have succeeded are not done again.
        output: print what would be sent, and send nothing.
        dialect: for that, of which Trainer.
        as_json: print outcomes.

    Raises:
        InvalidSpec: the file can't be read, or breaks a rule.
        JobFailed: one of them failed.
        ClusterError: the cluster can't be asked.
    """
    asked = request_file.read_requests(file, name, run_id)
    if output or dialect:
        terminal.print_yaml(*preview_requests(asked, namespace, dialect))
        return
    outcomes: list[Outcome] = []
    console = terminal.error_console() if as_json else terminal.console()
    try:
        with terminal.open_cluster() as cluster:
            for one in asked:
                outcomes.append(follow(cluster, one, namespace, console))
                if not outcomes[-1].succeeded:
                    break
    except Interrupted as stopped:
        raise typer.Exit(stopped.exit_code) from None
    finally:
        if as_json:
            terminal.print_json([outcome.to_dict() for outcome in outcomes])
    outcomes[-1].raise_for_failure()

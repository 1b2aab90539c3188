"""`trainjob watch`: a live table of TrainJobs, or a line per change without a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar

from trainjob.cli import completion, table_format, terminal
from trainjob.cli.terminal import escape
from trainjob.errors import ExitCode
from trainjob.inspection.live_status import LiveStatus
from trainjob.inspection.live_status import watch as watch_all
from trainjob.lifecycle import JobReference, ProgressLog
from trainjob.status import Phase, Progress, Verdict

__all__ = ["watch"]

_NAMES = typer.Argument(
    metavar="NAME", help="TrainJobs. Default: all of the namespace.", autocompletion=completion.complete_trainjobs
)
_BAR = 16  # characters
_FRAME_LINES = 3  # lines of the screen without a TrainJob


def watch(
    names: Annotated[list[str] | None, _NAMES] = None,
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show the phases and the progress of TrainJobs, live.

    With names, the command ends when all of these TrainJobs have ended; the exit code is 3 unless all are Complete.
    Without names, it shows the active and the new TrainJobs of the namespace until Ctrl-C.

    With --json: one object per line for each change, with the keys of `trainjob list --json`, and ranks_ready, ranks
    and progress. `progress` has step, total, epoch, epochs, loss, percent and the trainer's other metrics (`metrics`).
    It is null until the log has progress, or the TrainJob's status.
    """
    console = terminal.console()
    phases: dict[str, Phase] = {}
    try:
        with terminal.open_cluster() as cluster, contextlib.ExitStack() as stack:
            show = _print_json if as_json else _create_output(console, stack)
            for live_status in watch_all(cluster, namespace or cluster.namespace, names or ()):
                phases[live_status.summary.name] = live_status.summary.phase
                show(live_status)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if any(phase is not Phase.COMPLETE for phase in phases.values()):
        raise typer.Exit(ExitCode.JOB_FAILED)


def _print_json(live_status: LiveStatus) -> None:
    terminal.print_json(live_status.to_dict(), indent=None)


def _create_output(console: Console, stack: contextlib.ExitStack) -> Callable[[LiveStatus], None]:
    if not console.is_terminal:
        return _LineOutput()
    table = _TableOutput(console)
    # Live redraws the table at a fixed rate, because ages change without events.
    stack.enter_context(Live(console=console, get_renderable=table.render, refresh_per_second=4))
    return table


class _LineOutput:
    """Output of a line for each change, in the format of every waiter's progress log.

    Lines about progress are printed at intervals only.
    """

    def __init__(self) -> None:
        self._last_reported: dict[str, tuple[ProgressLog, Verdict | None, Progress | None]] = {}

    def __call__(self, live_status: LiveStatus) -> None:
        one = live_status.summary
        new = ProgressLog(JobReference(one.name, one.namespace, one.uid), terminal.print_line)
        progress_log, verdict, progress = self._last_reported.get(one.uid, (new, None, None))
        new_verdict = Verdict(one.phase, one.reason, one.message, one.step)
        if new_verdict != verdict:
            progress_log.log_phase(new_verdict)
        if live_status.progress and live_status.progress != progress:
            progress_log.log_progress(live_status.progress)
        self._last_reported[one.uid] = progress_log, new_verdict, live_status.progress


class _TableOutput:
    """The live table, which one thread changes and another thread draws."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live_statuses: dict[str, LiveStatus] = {}

    def __call__(self, live_status: LiveStatus) -> None:
        self._live_statuses[live_status.summary.name] = live_status

    def render(self) -> RenderableType:
        """Return the table, with as many TrainJobs as fit on the screen.

        Unfinished TrainJobs come first, then the newest.
        """
        found = sorted(self._live_statuses.values(), key=lambda one: one.summary.created, reverse=True)
        found.sort(key=lambda one: one.summary.phase.finished)
        max_rows = max(1, self._console.height - _FRAME_LINES)
        table = table_format.create_table("NAME", "PHASE", "QUEUE", "PROGRESS", "", "RANKS", "AGE", "REASON")
        for one in found[:max_rows]:
            table.add_row(*_cells(one))
        left_out = len(found) - max_rows
        table.caption = f"and {left_out} more" if left_out > 0 else None
        return table if found else "no active TrainJobs yet"


def _cells(live_status: LiveStatus) -> Iterator[RenderableType]:
    one, percent = live_status.summary, live_status.percent
    yield escape(one.name)
    yield table_format.format_phase(one.phase)
    yield escape(one.queue or "-")
    yield "" if percent is None else ProgressBar(100, percent, width=_BAR)
    yield escape(str(live_status.progress or ""))
    yield f"{live_status.ranks_ready}/{live_status.ranks}" if live_status.ranks and not one.phase.finished else "-"
    yield table_format.format_age(one.created, one.ended)
    yield escape(one.message or one.reason or "-")

"""`trainjob watch`: a live table of TrainJobs, or a line per change without a terminal."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar

from trainjob.cli import completion, table_format, terminal
from trainjob.errors import ExitCode
from trainjob.inspection.live_status import LiveStatus
from trainjob.inspection.live_status import watch as watch_all
from trainjob.lifecycle import JobReference, ProgressLog
from trainjob.status import Phase, Progress, Verdict

__all__ = ["watch"]

_NAMES = typer.Argument(help="Which; all of a namespace by default.", autocompletion=completion.complete_trainjobs)
_BAR = 16  # characters
_FRAME_LINES = 3  # lines of the screen without a TrainJob


def watch(
    names: Annotated[list[str] | None, _NAMES] = None,
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show how TrainJobs get on, until all that are named have ended; without names, those at work, until Ctrl-C.

    `--json` prints an object in one line at each change: what `trainjob list --json` tells, with `ranks_ready`,
    `ranks` and `progress` (`step`, `total`, `epoch`, `epochs`, `loss`, `percent`; null until the log tells).

    Args:
        names: which; none for all of the namespace.
        namespace: where; empty for the kubeconfig's own.
        as_json: for programs.

    Raises:
        NotFound: one that is named does not exist.
        ClusterError: the cluster can't be asked any more.
    """
    console = terminal.console()
    phases: dict[str, Phase] = {}
    try:
        with terminal.open_cluster() as cluster, contextlib.ExitStack() as stack:
            show = _print_json if as_json else _create_output(console, stack)
            for standing in watch_all(cluster, namespace or cluster.namespace, names or ()):
                phases[standing.summary.name] = standing.summary.phase
                show(standing)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if any(phase is not Phase.COMPLETE for phase in phases.values()):
        raise typer.Exit(ExitCode.JOB_FAILED)


def _print_json(live_status: LiveStatus) -> None:
    print(json.dumps(live_status.to_dict()), flush=True)


def _create_output(console: Console, stack: contextlib.ExitStack) -> Callable[[LiveStatus], None]:
    if not console.is_terminal:
        return _LineOutput()
    board = _TableOutput(console)
    # Live redraws the table at a fixed rate, because ages change without events.
    stack.enter_context(Live(console=console, get_renderable=board.render, refresh_per_second=4))
    return board


class _LineOutput:
    """Output of a line for each change, in the format of every waiter's progress log.

    Lines about progress are printed at intervals only.
    """

    def __init__(self) -> None:
        self._last_reported: dict[str, tuple[ProgressLog, Verdict | None, Progress | None]] = {}

    def __call__(self, live_status: LiveStatus) -> None:
        one = live_status.summary
        new = ProgressLog(JobReference(one.name, one.namespace, one.uid), lambda line: print(line, flush=True))
        progress_log, verdict, progress = self._last_reported.get(one.uid, (new, None, None))
        stands = Verdict(one.phase, one.reason, one.message, one.step)
        if stands != verdict:
            progress_log.log_phase(stands)
        if live_status.progress and live_status.progress != progress:
            progress_log.log_progress(live_status.progress)
        self._last_reported[one.uid] = progress_log, stands, live_status.progress


class _TableOutput:
    """The live table, which is drawn on another thread than it is changed on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live_statuses: dict[str, LiveStatus] = {}

    def __call__(self, live_status: LiveStatus) -> None:
        self._live_statuses[live_status.summary.name] = live_status

    def render(self) -> RenderableType:
        """Return the table, with as many TrainJobs as the screen has room for.

        Unfinished TrainJobs come first, then the newest.
        """
        found = sorted(self._live_statuses.values(), key=lambda one: one.summary.created, reverse=True)
        found.sort(key=lambda one: one.summary.phase.finished)
        room = max(1, self._console.height - _FRAME_LINES)
        table = table_format.create_table("NAME", "PHASE", "QUEUE", "PROGRESS", "", "RANKS", "AGE", "REASON")
        for one in found[:room]:
            table.add_row(*_cells(one))
        left_out = len(found) - room
        table.caption = f"and {left_out} more" if left_out > 0 else None
        return table if found else "no TrainJobs at work yet"


def _cells(live_status: LiveStatus) -> Iterator[RenderableType]:
    one, percent = live_status.summary, live_status.percent
    yield escape(one.name)
    yield table_format.format_phase(one.phase)
    yield escape(one.queue or "-")
    yield "" if percent is None else ProgressBar(100, percent, width=_BAR)
    yield escape(str(live_status.progress or ("" if percent is None else f"{percent:.0f} %")))
    yield f"{live_status.ranks_ready}/{live_status.ranks}" if live_status.ranks and not one.phase.finished else "-"
    yield table_format.format_age(one.created, one.ended)
    yield escape(one.message or one.reason or "-")

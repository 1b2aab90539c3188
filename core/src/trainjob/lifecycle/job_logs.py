"""Callbacks of a wait, and the logs of its TrainJob that call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainjob.client import Cluster, LogFollower, LogLine, LogNotice, WrittenTimes
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.status import Progress, Verdict
from trainjob.status.watchdog import WARNING_PREFIX, RankEnd, WatchdogReport, describe_hang, is_hang

_MAX_WARNINGS, _MAX_ENDS = 8, 1024


@dataclass
class Listener:
    """Callbacks of a wait.

    Each callback may be called from other threads, but never by two threads at once.

    Attributes:
        on_phase: called when the phase has changed, or the reason why the TrainJob does not start.
        on_log: called with every log line of any container. Reading the log waits for the callback. Use a
            [trainjob.client.LogWriter][] if writing the lines may be slow.
        on_progress: called with the progress of the training when a log line, or the TrainJob's status, reports it.
        on_earlier_progress: called instead with the progress in a line that an earlier process has written.
        on_warning: called with each of the outcome's `warnings`, before the wait returns, and when all nodes of a
            training together report that it hangs.
        catch_up_seconds: seconds after the end of the TrainJob for which its logs are read completely. Of a log that
            is far behind by then, only the last lines are read, after a notice; None reads all lines.
    """

    on_phase: Callable[[Verdict], None] = field(default=lambda _: None)
    on_log: Callable[[LogLine], None] = field(default=lambda _: None)
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)
    on_earlier_progress: Callable[[Progress], None] = field(default=lambda _: None, kw_only=True)
    on_warning: Callable[[str], None] = field(default=lambda _: None)
    catch_up_seconds: float | None = field(default=None, kw_only=True)


class JobLogs(LogFollower):
    """Follower of a TrainJob's logs that finds the progress in them.

    Attributes:
        progress: last progress in the logs; None if there is none.
        watchdogs: last report of each node's watchdog in the logs.
        rank_ends: ends of ranks that these watchdogs have written, each with its line, the first ones first.
        warnings: the first warnings of these watchdogs.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, listener: Listener, written_times: WrittenTimes | None
    ) -> None:
        """Create a follower that reads no log yet, and passes lines and progress to the listener."""
        self.progress: Progress | None = None
        self.watchdogs: dict[int, WatchdogReport] = {}
        self.rank_ends: list[tuple[LogLine, RankEnd]] = []
        self.warnings: list[str] = []
        self._has_warned = False
        self._reported: Progress | None = None
        self._parser, self._listener = JobLogParser(), listener
        catch_up = listener.catch_up_seconds
        super().__init__(cluster, namespace, self._on_line, written_times, catch_up_seconds=catch_up)

    def _on_line(self, line: LogLine) -> None:
        if not isinstance(line, LogNotice) and (progress := self._parser.feed(line.text)):
            self.progress = progress = progress.with_report(self._reported)
            (self._listener.on_earlier_progress if line.is_written else self._listener.on_progress)(progress)
        if report := WatchdogReport.from_line(line.text):
            self.watchdogs[report.node] = report
        elif end := RankEnd.from_line(line.text):
            self.rank_ends = [*self.rank_ends[1 - _MAX_ENDS :], (line, end)]
        if line.text.startswith(WARNING_PREFIX) and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(line.text.removeprefix(WARNING_PREFIX))
        self._listener.on_log(line)
        if report:
            self._warn_of_hang()

    def _warn_of_hang(self) -> None:
        """Report a hang of several nodes when the last one has reported it."""
        reports = list(self.watchdogs.values())
        are_all = len(reports) > 1 and sum(len(each.ranks) for each in reports) >= reports[0].world_size
        if are_all and not self._has_warned and is_hang(reports):
            self._listener.on_warning(f"the training hangs: {describe_hang(reports)}")
        self._has_warned = are_all

    def report_progress(self, reported: Progress) -> None:
        """Pass on what the trainer has reported in the TrainJob's status.

        A report that is older than a known one is left out. The call blocks while another callback runs.
        """

        def pass_on() -> None:
            if self._reported is None or self._reported.reported_at < reported.reported_at:
                self._reported = reported
                self._listener.on_progress(self.progress.with_report(reported) if self.progress else reported)

        self.call_between_lines(pass_on)

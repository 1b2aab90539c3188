"""The log parser for any job: it finds progress of a fetch and of every framework."""

from __future__ import annotations

from trainjob.frameworks.torchtune.log_parser import TorchTuneLogParser
from trainjob.status import FetchLogParser, LogParser, Progress


class JobLogParser:
    """Reads the lines of one job's log in order, with the parsers of all frameworks.

    A job that somebody else created does not name its framework; its log does, because each format differs.
    """

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._parsers: tuple[LogParser, ...] = (FetchLogParser(), TorchTuneLogParser())

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        for parser in self._parsers:
            if progress := parser.feed(line):
                return progress
        return None

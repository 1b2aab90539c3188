"""Log parser for any job: it finds the progress of a fetch and of every framework."""

from __future__ import annotations

from trainjob.frameworks.torchtune.log_parser import TorchTuneLogParser
from trainjob.frameworks.transformers_log_parser import TransformersLogParser
from trainjob.status.progress import FetchLogParser, LogParser, Progress


class JobLogParser:
    """Parser of one job's log with the parsers of all frameworks; feed the lines in order.

    A job that another user or tool created does not name its framework. The first progress of a training identifies the
    framework, because each format differs.
    """

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._parsers: tuple[LogParser, ...] = (FetchLogParser(), TorchTuneLogParser(), TransformersLogParser())

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        for parser in self._parsers:
            if progress := parser.feed(line):
                if progress.unit == "step":  # another parser could report an earlier step
                    self._parsers = (parser,)
                return progress
        return None

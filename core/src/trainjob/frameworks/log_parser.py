"""Log parser for any job: it finds the progress of a fetch, an export and every framework."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace

from trainjob.framework_modules import load_modules
from trainjob.frameworks.transformers_log_parser import TransformersLogParser
from trainjob.status.progress import LogParser, Progress, TransferLogParser
from trainjob.status.watchdog import StepReport, StepReports

_log = logging.getLogger(__name__)
_broken: set[str] = set()  # modules whose parser has raised an error


class JobLogParser:
    """Parser of one job's log with the parsers of all frameworks; feed the lines in order.

    A job that another user or tool created does not name its framework. The first progress of a training identifies the
    framework, because each format differs. A framework has its own parser as `LOG_PARSER` of its module `log_parser`: a
    class or a function without arguments. Several frameworks, and users' functions, log as transformers' Trainer does.
    """

    def __init__(self) -> None:
        """Create a parser that has seen no line."""
        self._parsers: tuple[LogParser, ...] = tuple(create() for create in _list_parsers())
        self._training: Progress | None = None  # the last progress of a training
        self._ranks = StepReports()

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new.

        The watchdog of each pod reports the steps of its ranks. They are the progress of a training that logs none.
        A parser that raises an error is left out from then on.
        """
        if report := StepReport.from_line(line):
            if not self._ranks.add(report):
                return None
        elif progress := self._parse(line):
            if progress.unit != "step":
                return progress
            self._training = progress
        else:
            return None
        ranks = self._ranks.newest
        if self._training and ranks:
            return replace(self._training, ranks=ranks)
        return Progress(ranks.fastest_step, ranks=ranks) if ranks else self._training

    def _parse(self, line: str) -> Progress | None:
        for parser in self._parsers:
            try:
                if progress := parser.feed(line):
                    if progress.unit == "step":  # another parser could report an earlier step
                        self._parsers = (parser,)
                    return progress
            except Exception as error:  # noqa: BLE001 - it may be that of another package
                _warn(type(parser).__module__, error)
                self._parsers = tuple(other for other in self._parsers if other is not parser)
        return None


@functools.cache
def _list_parsers() -> tuple[Callable[[], LogParser], ...]:
    parsers: list[Callable[[], LogParser]] = [TransferLogParser, TransformersLogParser]
    for module in load_modules("log_parser"):
        try:
            module.LOG_PARSER()
            parsers.append(module.LOG_PARSER)
        except Exception as error:  # noqa: BLE001 - it may be that of another package
            _warn(module.__name__, error)
    return tuple(parsers)


def _warn(module: str, error: Exception) -> None:
    """Log once that the parser of a module is not used."""
    if module not in _broken:
        _broken.add(module)
        _log.warning("the log parser of %s is not used: %s: %s", module, type(error).__name__, error)

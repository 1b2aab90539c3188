"""Parser of the training's log lines, which become the progress of the step."""

from __future__ import annotations

import re

from trainjob.status.progress import Progress

_LINE = re.compile(r"line: step (\d{1,9}) of (\d{1,9}), loss (\d{1,9}\.\d{1,9})")


class LineLogParser:
    """Parser of one training's log; it gets the lines in order."""

    def feed(self, line: str) -> Progress | None:
        """Return the progress that a line reports, or None if it reports nothing new."""
        found = _LINE.fullmatch(line)
        return Progress(step=int(found[1]), total=int(found[2]), loss=float(found[3])) if found else None


LOG_PARSER = LineLogParser

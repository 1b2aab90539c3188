"""Rows of progress bars in a container's log, so that each bar is one line.

A program with several bars draws each in a row of its own. tqdm 4.67 writes a newline for each row down, the bar, and
an escape sequence for each row up. In the log, each state of such a bar is a line, with blank lines before it.
"""

from __future__ import annotations

import re

from trainjob.client.log_lines import LogLine

ROW_UP = re.compile(rb"\x1b\[(\d{0,3})A")
"""Escape sequence that moves the cursor up, by one row or a number of rows."""
_BAR = re.compile(r"\d%|\[\d\d:\d\d")  # percentage or elapsed time
_MAX_ROWS = 64


def count_rows(separators: bytes) -> int:
    """Return the number of rows by which escape sequences move the cursor up."""
    return sum(int(rows or 1) for rows in ROW_UP.findall(separators))


class BarRows:
    """Lines of a log of which only the next line shows whether they are frames.

    These are states of bars and blank lines below them, of which some are held back. All other lines are returned at
    once: the loss of a step does not wait for the next step.
    """

    def __init__(self) -> None:
        """Create rows without a bar."""
        self._held: list[LogLine] = []
        self._rows_below = 0  # below the cursor, up to the lowest row in which a bar is
        self._follows_bar = False  # whether the cursor went up after the last line with text

    @property
    def is_empty(self) -> bool:
        """Whether a next line without an escape sequence is in none of the rows."""
        return not (self._held or self._rows_below or self._follows_bar)

    def add_line(self, line: LogLine, *, rows_up: int, is_redrawn: bool) -> list[LogLine]:
        """Return the lines that are known to be complete after a line of the log.

        Args:
            line: the line; a frame if the cursor went up after it.
            rows_up: number of rows by which it moves the cursor up.
            is_redrawn: whether its text has replaced another one in its row.
        """
        self._rows_below = min(self._rows_below + rows_up, _MAX_ROWS)
        is_bar = bool((is_redrawn or self._rows_below) and _BAR.search(line.text))
        if line.text:
            self._follows_bar = line.frame
        is_row = bool(self._rows_below) if line.text else not self.is_empty
        found: list[LogLine] = []
        if line.text and rows_up:
            found = self.release(frames=rows_up)
        elif not is_row or (line.text and not is_bar) or len(self._held) >= _MAX_ROWS:
            found = self.release()
        self._rows_below = max(0, self._rows_below - 1)
        if not line.text and rows_up:
            return found  # it only moves the cursor
        if not line.frame and (is_bar or (is_row and not line.text)):
            self._held.append(line)
            return found
        return [*found, line]

    def release(self, *, frames: int = 0) -> list[LogLine]:
        """Return the lines that were held back.

        Args:
            frames: how many of them, from the last, are frames, because the cursor has gone up to them.
        """
        if not self._held:
            return []
        first_frame = len(self._held) - frames
        for number, line in enumerate(self._held):
            line.frame = number >= first_frame
        found, self._held = [line for line in self._held if line.text or not line.frame], []
        return found

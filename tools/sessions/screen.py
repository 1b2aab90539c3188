"""A terminal screen as text, for the few control sequences that rich uses."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;?]*)(?P<final>[A-Za-z])|\x1b[^\[]|(?P<plain>[^\x1b\r\n]+)|(?P<control>.)", re.S
)


class Screen:
    """The lines of a terminal without scrolling."""

    def __init__(self) -> None:
        self._lines, self._row, self._column = [""], 0, 0

    def feed(self, written: str) -> None:
        """Interpret a text with complete control sequences."""
        for token in _TOKEN.finditer(written):
            if plain := token["plain"]:
                self._write(plain)
            elif token["control"] == "\r":
                self._column = 0
            elif token["control"] == "\n":
                self._row, self._column = self._row + 1, 0
                self._lines += [""] * (self._row + 1 - len(self._lines))
            elif token["final"] == "A":
                self._row = max(0, self._row - int(token["arguments"] or 1))
            elif token["final"] == "K":
                self._lines[self._row] = "" if token["arguments"] == "2" else self._lines[self._row][: self._column]

    @property
    def text(self) -> str:
        """Visible text, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._lines).strip("\n") + "\n"

    def _write(self, plain: str) -> None:
        line = self._lines[self._row].ljust(self._column)
        self._column += len(plain)
        self._lines[self._row] = line[: self._column - len(plain)] + plain + line[self._column :]


def render(written: str) -> str:
    """Return the text that a terminal shows after a program has written to it."""
    screen = Screen()
    screen.feed(written)
    return screen.text

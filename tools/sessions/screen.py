"""A terminal screen as text, for the few control sequences that rich uses."""

from __future__ import annotations

import re
from itertools import groupby

_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;?]*)(?P<final>[A-Za-z])|\x1b[^\[]|(?P<plain>[^\x1b\r\n]+)|(?P<control>.)", re.S
)
_BLANK = (" ", "")


class Screen:
    """The lines of a terminal without scrolling; each cell has a character and its style."""

    def __init__(self) -> None:
        self._lines: list[list[tuple[str, str]]] = [[]]
        self._row, self._column, self._style = 0, 0, ""

    def feed(self, written: str) -> None:
        """Interpret a text with complete control sequences."""
        for token in _TOKEN.finditer(written):
            if plain := token["plain"]:
                self._write(plain)
            elif token["control"] == "\r":
                self._column = 0
            elif token["control"] == "\n":
                self._row, self._column = self._row + 1, 0
                self._lines += [[] for _ in range(self._row + 1 - len(self._lines))]
            elif token["final"] == "A":
                self._row = max(0, self._row - int(token["arguments"] or 1))
            elif token["final"] == "K":
                self._lines[self._row] = [] if token["arguments"] == "2" else self._lines[self._row][: self._column]
            elif token["final"] == "m":
                self._style = "" if token["arguments"] in ("", "0") else self._style + token[0]

    @property
    def text(self) -> str:
        """Visible text, without blanks at the ends of lines."""
        lines = ("".join(character for character, _ in line).rstrip() for line in self._lines)
        return "\n".join(lines).strip("\n") + "\n"

    @property
    def styled_text(self) -> str:
        """Visible text with the control sequences of its colors."""
        return "\n".join(_format_styles(line) for line in self._lines).strip("\n") + "\n"

    def _write(self, plain: str) -> None:
        line = self._lines[self._row]
        line += [_BLANK] * (self._column - len(line))
        line[self._column : self._column + len(plain)] = [(character, self._style) for character in plain]
        self._column += len(plain)


def _format_styles(line: list[tuple[str, str]]) -> str:
    parts = []
    for style, cells in groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        parts.append(f"{style}{text}\x1b[0m" if style else text)
    return "".join(parts)


def render(written: str) -> str:
    """Return the text that a terminal shows after a program has written to it."""
    screen = Screen()
    screen.feed(written)
    return screen.text


def render_with_colors(written: str) -> str:
    """Return the text that a terminal shows, with the control sequences of its colors."""
    screen = Screen()
    screen.feed(written)
    return screen.styled_text

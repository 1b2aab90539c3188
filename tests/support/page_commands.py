"""Commands of the `console` blocks of a page, with the output that the page shows.

A line that starts with `$ ` is a command, and lines that start with `> ` continue it. All other lines are output. A
block with `title="NAME"` is a file that the reader writes before the commands after it. A command must fail
if the page shows an error message below it. Every other command must succeed, unless `$ echo $?` follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.code_blocks import RUNNABLE_BLOCKS, CodeBlock

# Texts that differ from run to run: numbers, identifiers of hexadecimal digits, and blanks that align a table.
_VARYING = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+(?:\.\d+)?|\s+|\.\.\.")
# The messages of `trainjob` and of kubectl.
_ERROR_LINE = re.compile(r"error: |Error: |Error from server(?: \(\w+\))?: |Usage: ")


@dataclass(frozen=True)
class PageCommand:
    """A command of a page.

    Attributes:
        page: the page's path, relative to the repository's root.
        line: number of the command's line in it.
        text: the shell command, without the prompt.
        output: the lines that the page shows below the command.
    """

    page: str
    line: int
    text: str
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def parse_commands(block: CodeBlock) -> Iterator[PageCommand]:
    """Yield the commands of a `console` block.

    Raises:
        ValueError: The block does not begin with a command.
    """
    typed: list[str] = []
    output: list[str] = []
    first = 0
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            if typed:
                yield PageCommand(block.page, first, "\n".join(typed), tuple(output))
            typed, output, first = [line[2:]], [], number
        elif not typed:
            raise ValueError(f"{block}: a console block begins with a command: `$ ...`")
        elif line.startswith("> ") and not output:
            typed.append(line[2:])
        else:
            output.append(line)
    if typed:
        yield PageCommand(block.page, first, "\n".join(typed), tuple(output))


def page_steps(page: str) -> list[CodeBlock | PageCommand]:
    """Return the files and the commands of a page, in its order.

    Blocks that are marked as not run are left out.
    """
    steps: list[CodeBlock | PageCommand] = []
    for block in RUNNABLE_BLOCKS:
        if block.page != page:
            continue
        if block.title:
            steps.append(block)
        elif block.language == "console":
            steps += parse_commands(block)
    return steps


def shows_failure(command: PageCommand) -> bool:
    """Return whether the page shows an error message as the command's output."""
    return any(_ERROR_LINE.match(line) for line in command.output)


def find_missing_line(expected: tuple[str, ...], actual: str) -> str | None:
    """Return the first line of the page's output that the command did not print, or None.

    The lines must appear in the same order; others may be between them. Numbers, identifiers and blanks may differ, and
    `...` stands for any text, on a line of its own for any lines.
    """
    lines = iter(actual.splitlines())
    for line in expected:
        if line.strip() not in ("", "...") and not any(
            _line_pattern(line).fullmatch(printed.strip()) for printed in lines
        ):
            return line
    return None


def _line_pattern(line: str) -> re.Pattern[str]:
    parts, end = [], 0
    text = line.strip()
    for varying in _VARYING.finditer(text):
        parts += [re.escape(text[end : varying.start()]), _replacement(varying[0])]
        end = varying.end()
    return re.compile("".join([*parts, re.escape(text[end:])]))


def _replacement(text: str) -> str:
    if text == "...":
        return ".*"
    if text.isspace():
        return r"\s+"
    return r"\d+(?:\.\d+)?" if re.fullmatch(r"\d+(?:\.\d+)?", text) else "[0-9a-f]+"

"""HTML page that shows the output of a terminal with its colors."""

from __future__ import annotations

import html
import io

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

_BLACK, _WHITE = (36, 41, 47), (255, 255, 255)
_COLORS = [
    _BLACK,
    (207, 34, 46),
    (17, 99, 41),
    (154, 103, 0),
    (9, 105, 218),
    (130, 80, 223),
    (27, 124, 131),
    (87, 96, 106),
]
_THEME = TerminalTheme(_WHITE, _BLACK, _COLORS)
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ margin: 0; background: #fff; }}
main {{ display: inline-block; margin: 8px; border: 1px solid #d0d7de; border-radius: 8px; overflow: hidden; }}
header {{ font: 13px sans-serif; color: #57606a; background: #f6f8fa; border-bottom: 1px solid #d0d7de;
  padding: 7px 14px; text-align: center; }}
pre {{ margin: 0; padding: 12px 16px; font: 14px/1.4 "DejaVu Sans Mono", monospace; color: #24292f; width: {width}ch;
  white-space: pre-wrap; word-break: break-all; }}
</style></head><body><main><header>{title}</header><pre>{text}</pre></main></body></html>
"""


def render_page(title: str, command: str, styled_text: str, width: int) -> str:
    """Return the page of one command and its output.

    Args:
        title: text above the terminal.
        command: command that was typed.
        styled_text: output with the control sequences of its colors.
        width: columns of the terminal.
    """
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "green"), (command, "bold")), overflow="ignore", no_wrap=True, crop=False)
    console.print(Text.from_ansi(styled_text), overflow="ignore", no_wrap=True, crop=False, end="")
    text = console.export_html(theme=_THEME, code_format="{code}", inline_styles=True)
    return _PAGE.format(title=html.escape(title), width=width, text=text.rstrip("\n"))

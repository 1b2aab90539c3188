"""Formatting of TrainJob data in tables and lines for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from trainjob.cli.terminal import escape
from trainjob.status import Phase

__all__ = ["create_table", "format_age", "format_phase", "join_words", "print_table"]

_COLORS = {
    Phase.RUNNING: "green",
    Phase.COMPLETE: "bold green",
    Phase.FAILED: "bold red",
    Phase.DELETED: "red",
    Phase.QUEUED: "yellow",
    Phase.SUSPENDED: "yellow",
}
# Units of a duration, with their seconds and upper limits in seconds; as in kubectl (Kubernetes 1.36, apimachinery
# duration.go).
_UNITS = (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800), ("d", 86_400, sys.maxsize))


def create_table(*titles: str) -> Table:
    """Return an empty table without borders, of which only the last column may wrap.

    If a terminal is too narrow for the other columns, an ellipsis marks each cell that is cut.
    """
    table = Table(box=None, pad_edge=False)
    for title in titles:
        is_last = title is titles[-1]
        table.add_column(title, no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    return table


def print_table(console: Console, table: Table, indent: int = 0) -> None:
    """Print a table, limited to the width of the terminal if there is one.

    On a terminal the last column wraps. Elsewhere no line wraps.
    """
    if not console.is_terminal:
        console.width = 10_000
    console.print(Padding(table, (0, 0, 0, indent), expand=False))


def format_phase(phase: Phase) -> str:
    """Return a phase with its color as markup."""
    color = _COLORS.get(phase, "cyan")
    return f"[{color}]{escape(phase.value)}[/]"


def format_age(begin: str, end: str = "") -> str:
    """Return the time between two RFC 3339 times, such as `5m`.

    Args:
        begin: start time.
        end: end time; empty means now.

    Returns:
        The duration; `-` if one of the times cannot be parsed.
    """
    try:
        began, ended = (_parse_time(text) for text in (begin, end or datetime.now(timezone.utc).isoformat()))
    except ValueError:
        return "-"
    seconds = max(0, int((ended - began).total_seconds()))
    unit, size, _ = next(unit for unit in _UNITS if seconds < unit[2])
    return f"{seconds // size}{unit}"


def join_words(parts: Iterable[str]) -> str:
    """Return the texts that are not empty, joined for one cell; `-` if there are none."""
    return ", ".join(part for part in parts if part) or "-"


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)

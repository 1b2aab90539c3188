"""How facts about TrainJobs are written in tables and lines for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from trainjob.status import Phase

__all__ = ["age", "colored", "columns", "print_table", "words"]

_COLORS = {
    Phase.RUNNING: "green",
    Phase.COMPLETE: "bold green",
    Phase.FAILED: "bold red",
    Phase.DELETED: "red",
    Phase.QUEUED: "yellow",
    Phase.SUSPENDED: "yellow",
}
# What a length of time is told in, and up to which length: as kubectl does (Kubernetes 1.36, apimachinery duration.go).
_UNITS = (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800), ("d", 86_400, sys.maxsize))


def columns(*titles: str) -> Table:
    """An empty table without lines; only its last column may be broken."""
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title is not titles[-1], overflow="fold")
    return table


def print_table(console: Console, table: Table, indent: int = 0) -> None:
    """Print a table: as wide as the terminal, where its last column goes on in the next line, and whole elsewhere."""
    if not console.is_terminal:
        console.width = 10_000
    console.print(Padding(table, (0, 0, 0, indent), expand=False))


def colored(phase: Phase) -> str:
    """A phase, with its colour as markup."""
    color = _COLORS.get(phase, "cyan")
    return f"[{color}]{escape(phase.value)}[/]"


def age(begin: str, end: str = "") -> str:
    """The time between two RFC 3339 times, such as `5m`; until now without an end; `-` where it can't be told."""
    try:
        began, ended = (_moment(text) for text in (begin, end or datetime.now(timezone.utc).isoformat()))
    except ValueError:
        return "-"
    seconds = max(0, int((ended - began).total_seconds()))
    unit, size, _ = next(unit for unit in _UNITS if seconds < unit[2])
    return f"{seconds // size}{unit}"


def words(parts: Iterable[str]) -> str:
    """Those that are not empty, in one cell."""
    return ", ".join(part for part in parts if part) or "-"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)

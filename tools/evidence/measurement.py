"""When, where and how the tables of docs/evidence were measured, and how old they are."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "evidence"
UNRECORDED = "commit not recorded"
LIMIT = 200
"""A page may be older than its measured code by so many commits."""

_ALL = ("core/src", "laptop/src", "providers/airflow/src", "components/kfp/src")
MEASURED = {
    "airflow.md": ("core/src", "laptop/src", "providers/airflow/src"),
    "benchmarks.md": _ALL,
    "conformance.md": ("core/src", "laptop/src", "tests/conformance"),
    "features.md": _ALL,
    "gpu.md": ("core/src/trainjob/frameworks", "core/src/trainjob/programs"),
    "models.md": (
        "core/src/trainjob/frameworks/trl",
        "core/src/trainjob/frameworks/transformers",
        "core/src/trainjob/programs",
    ),
    "reliability.md": _ALL,
    "watchdog.md": ("core/src/trainjob/frameworks/supervision", "core/src/trainjob/status/watchdog.py"),
    "sessions.md": ("core/src/trainjob/cli", "core/src/trainjob/inspection", "demo/src", "migrate/src"),
}
"""The code that each page measures."""

WITHOUT_MEASUREMENT = {"migration.md": "tests/unit/migrate compares it with the code of the same commit"}
"""Pages that need no measurement, and why."""

NEVER_RUN = "were never run"
"""Text of a page without results."""

_RECORD = re.compile(
    r"(?:commit `(?P<commit>[0-9a-f]{7,40})`|commit not recorded), (?:\d{4}-\d\d-\d\d|date not recorded)"
)


@dataclass(frozen=True)
class Age:
    """The number of commits that have changed the measured code since a measurement.

    Attributes:
        record: the text of the page with commit and date.
        commits: number of commits; None if this clone does not have the history, or if no commit was recorded.
    """

    record: str
    commits: int | None

    @property
    def has_commit(self) -> bool:
        """Whether the commit of the measurement was recorded."""
        return not self.record.startswith(UNRECORDED)

    def __str__(self) -> str:
        if self.commits is None:
            return f"{self.record}: its age is not known from the history in this clone"
        return f"{self.record}: {self.commits:,} commits have changed the measured code since"


def describe_measurement(command: str) -> str:
    """Return commit, date, machine and command of a measurement that ends now, for a page."""
    commit = find_commit()
    changed = " with changes" if commit and _git("status", "--porcelain", "--untracked-files=no", "--", *_ALL) else ""
    today = date.today().isoformat()  # noqa: DTZ011 - readers expect the local date
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    return f"{describe_commit(commit)}, {today}{changed}, {machine}, `{command}`"


def find_commit() -> str:
    """Return the commit of this checkout; empty if it has no history."""
    return _git("rev-parse", "--short=10", "HEAD")


def describe_commit(commit: str) -> str:
    """Return the text that names a commit on a page; the commit may be empty."""
    return f"commit `{commit}`" if commit else UNRECORDED


def read_ages(page: str, text: str) -> Iterator[Age]:
    """Yield the age of each measurement of a page.

    Args:
        page: name of the page in docs/evidence.
        text: the page.
    """
    counted: dict[str, Age] = {}
    for record in _RECORD.finditer(text):
        if record[0] not in counted:
            count = _count_commits(record["commit"], MEASURED[page]) if record["commit"] else None
            counted[record[0]] = Age(record[0], count)
        yield counted[record[0]]


def age_note(page: str, text: str) -> str:
    """Return a note for the site about the ages of a page's measurements; it may be empty."""
    ages = dict.fromkeys(read_ages(page, text)) if page in MEASURED else {}
    lines = [f"    * {age}" for age in ages]
    return "\n".join(['!!! note "Age of the measurements"', "", *lines, ""]) if lines else ""


def _count_commits(commit: str, paths: tuple[str, ...]) -> int | None:
    """Return how many commits have changed the paths since; None if git does not know."""
    count = _git("rev-list", "--count", f"{commit}..HEAD", "--", *paths)
    return int(count) if count else None


def _git(*arguments: str) -> str:
    """Return the output of git; empty if it fails, for example in a folder without history."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""Rows of the report of `trainjob check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

_MAX_NAMES = 12


class Grade(str, Enum):
    """Grade of one row of the check."""

    OK = "ok"
    WARNING = "warning"
    """TrainJobs run, but some features do not work."""
    FAILED = "failed"
    """No TrainJob runs."""
    UNKNOWN = "unknown"
    """It could not be checked."""


@dataclass(frozen=True)
class CheckResult:
    """Result of the check of one subject.

    Attributes:
        name: the subject, such as `permissions`.
        grade: the grade.
        text: what was found, or what is wrong and its effect.
        advice: the remedy; empty if there is nothing to do.
    """

    name: str
    grade: Grade
    text: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {**asdict(self), "grade": self.grade.value}


def join_names(names: Sequence[str]) -> str:
    """Return at most 12 names as text, and the number of the others."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more

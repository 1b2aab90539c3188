"""Selection of the rows that one request of the page shows, with the counts for its filters.

The functions do no I/O. They get only rows that the user may see, so no count includes another TrainJob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SEARCHED_FIELDS = ("name", "dag", "task", "run", "phase", "queue")


@dataclass(frozen=True)
class JobPage:
    """One page of a list of TrainJobs.

    Attributes:
        rows: the rows of the page.
        total: number of rows on all pages.
        offset: position of the first row of the page, from 0.
        dags: number of TrainJobs by DAG, before the filters by DAG, phase and text.
        phases: number of TrainJobs by phase, before the filters by phase and text.
    """

    rows: Sequence[dict[str, Any]]
    total: int
    offset: int
    dags: Mapping[str, int]
    phases: Mapping[str, int]


def select_page(
    rows: Iterable[dict[str, Any]], *, dag: str = "", phase: str = "", text: str = "", offset: int = 0, limit: int
) -> JobPage:
    """Return one page of the rows: active TrainJobs first, and the newest of each group first.

    Args:
        rows: rows of all TrainJobs that the user may see.
        dag: ID of the DAG; empty for all.
        phase: phase of the TrainJobs; empty for all.
        text: words that must all occur in a row, in any case of the letters.
        offset: number of rows before the page. If there are not so many rows, the last page is returned.
        limit: maximum number of rows of the page.
    """
    rows = list(rows)
    dags = Counter(row["dag"] for row in rows)
    of_dag = [row for row in rows if not dag or row["dag"] == dag]
    phases = Counter(row["phase"] for row in of_dag)
    words = text.lower().split()
    found = [row for row in of_dag if (not phase or row["phase"] == phase) and _has_words(row, words)]
    found.sort(key=lambda row: row["created"], reverse=True)
    found.sort(key=lambda row: row["finished"])
    first = min(offset, max(0, len(found) - 1) // limit * limit)
    return JobPage(
        found[first : first + limit], len(found), first, dict(sorted(dags.items())), dict(sorted(phases.items()))
    )


def _has_words(row: Mapping[str, Any], words: Sequence[str]) -> bool:
    text = " ".join(row[name] for name in _SEARCHED_FIELDS).lower() if words else ""
    return all(word in text for word in words)

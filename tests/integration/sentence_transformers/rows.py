"""Texts about two subjects, and rows of them for each kind of loss."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

_SUBJECTS = {
    "printer": ("the printer has no paper", "the printer is out of toner", "paper is stuck in the printer"),
    "network": ("the network is slow today", "no network in the office", "the network cable is broken"),
    "account": ("my account is locked", "i forgot my account password", "please unlock the account"),
    "screen": ("the screen stays black", "a black screen after start", "the screen flickers"),
}
TEXTS = [text for texts in _SUBJECTS.values() for text in texts]
"""All texts."""


def build_rows(columns: str) -> list[dict[str, Any]]:
    """Return rows with the columns `pairs`, `triplets`, `scored` or `labeled`."""
    similar = [pair for texts in _SUBJECTS.values() for pair in itertools.permutations(texts, 2)]
    others = [next(text for text in reversed(TEXTS) if text not in _of_subject(one)) for one, _ in similar]
    if columns == "pairs":
        return [{"anchor": one, "positive": other} for one, other in similar]
    if columns == "triplets":
        rows = zip(similar, others, strict=True)
        return [{"anchor": one, "positive": other, "negative": third} for (one, other), third in rows]
    name, numbers = {"scored": ("score", (0.9, 0.1)), "labeled": ("label", (1, 0))}[columns]
    scored = [(one, other, numbers[0]) for one, other in similar]
    scored += [(one, other, numbers[1]) for (one, _), other in zip(similar, others, strict=True)]
    return [{"sentence1": one, "sentence2": other, name: number} for one, other, number in scored]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _of_subject(text: str) -> tuple[str, ...]:
    return next(texts for texts in _SUBJECTS.values() if text in texts)

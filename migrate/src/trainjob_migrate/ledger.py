"""A ledger of a document's fields, so that no field is dropped without a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from trainjob.spec.redaction import excerpt, shown

Path = tuple[str | int, ...]
"""Keys and indexes from the document's root."""
EMPTY: tuple[Any, ...] = (None, {}, [], "")
"""Values that count as empty in any field."""


class Fate(str, Enum):
    """The result of the conversion for a field."""

    CONVERTED = "converted"
    """The field is in the TrainJob."""
    MOVED = "moved"
    """The field is in the TrainingRuntime that is generated for this job."""
    DROPPED = "dropped"
    """The field has no counterpart in the new objects, with little or no effect.

    The reason of the line says why.
    """
    REFUSED = "refused"
    """The field blocks the conversion until the user changes or removes it."""


@dataclass(frozen=True)
class Line:
    """One field, or a part of the document whose fields share a fate.

    Attributes:
        path: path of the field, such as `spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[2].value`.
        fate: the result of the conversion.
        target: field of the new object that holds the value; empty if no field does.
        reason: the reason, unless it is obvious.
        given: value of the field, shortened; `***` if it could be a secret.
    """

    path: str
    fate: Fate
    target: str
    reason: str
    given: str

    def to_dict(self) -> dict[str, str]:
        """Return the line as JSON values."""
        return {**asdict(self), "fate": self.fate.value}


@dataclass(frozen=True)
class _Entry:
    fate: Fate
    target: str
    reason: str


class Ledger:
    """The leaves of a document, each of which is claimed once.

    A claim covers the unclaimed leaves below a path. If these are all leaves below the path, they become one line, else
    one line each. So every leaf is in exactly one line. A leaf is a scalar, or an empty mapping or list.

    Args:
        source: the document.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._source = source
        self._order = {leaf: number for number, leaf in enumerate(leaves(source))}
        self._below: dict[Path, list[Path]] = {}
        for leaf in self._order:
            for length in range(len(leaf) + 1):
                self._below.setdefault(leaf[:length], []).append(leaf)
        self._claimed: set[Path] = set()
        self._lines: dict[Path, _Entry] = {}

    def converted(self, path: Path, target: str, reason: str = "") -> None:
        """Claim a path whose value is at `target` in the TrainJob."""
        self._claim(path, _Entry(Fate.CONVERTED, target, reason))

    def moved(self, path: Path, target: str, reason: str = "") -> None:
        """Claim a path whose value is at `target` in the generated TrainingRuntime."""
        self._claim(path, _Entry(Fate.MOVED, target, reason))

    def dropped(self, path: Path, reason: str) -> None:
        """Claim a path that is left out."""
        self._claim(path, _Entry(Fate.DROPPED, "", reason))

    def refused(self, path: Path, reason: str) -> None:
        """Claim a path that prevents the creation of a TrainJob.

        The path may also be that of a missing field that is required.
        """
        entry = _Entry(Fate.REFUSED, "", reason)
        self._claim(path, entry)
        if path not in self._below:
            self._lines[path] = entry

    def lines(self) -> tuple[Line, ...]:
        """Return a line for every leaf, in the document's order.

        Unclaimed leaves are refused if they have a value, and dropped if they are empty.
        """
        copy = shown(self._source)
        for leaf in self._order:
            if leaf not in self._claimed:
                is_empty = value_at(self._source, leaf) in EMPTY
                fate, reason = (Fate.DROPPED, "it is empty") if is_empty else (Fate.REFUSED, _UNKNOWN)
                self._claim(leaf, _Entry(fate, "", reason))
        paths = sorted(self._lines, key=self._place)
        return tuple(self._line(path, excerpt(copy, path)) for path in paths)

    def _claim(self, path: Path, entry: _Entry) -> None:
        below = self._below.get(path, [])
        free = [leaf for leaf in below if leaf not in self._claimed]
        self._claimed.update(free)
        self._lines.update(dict.fromkeys([path] if free and len(free) == len(below) else free, entry))

    def _place(self, path: Path) -> int:
        below = self._below.get(path)
        return self._order[below[0]] if below else len(self._order)

    def _line(self, path: Path, given: str) -> Line:
        entry = self._lines[path]
        return Line(written(path), entry.fate, entry.target, entry.reason, given)


_UNKNOWN = "no such field is known here, or not with a value of this kind; correct or remove it"


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each leaf, in the document's order."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list | tuple) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def value_at(source: Any, path: Path) -> Any:
    """Return the value at a path."""
    for part in path:
        source = source[part]
    return source


def written(path: Path) -> str:
    """Format a path; a key that contains a dot is written in brackets."""
    text = ""
    for part in path:
        plain = isinstance(part, str) and part.replace("_", "").replace("-", "").isalnum()
        text += f".{part}" if plain else f"[{part}]" if isinstance(part, int) else f'["{part}"]'
    return text.removeprefix(".")

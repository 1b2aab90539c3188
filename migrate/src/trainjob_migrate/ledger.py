"""The book that is kept of a document's fields, so that none disappears without a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from trainjob.spec.redaction import excerpt, shown

Path = tuple[str | int, ...]
"""Keys and indexes from the document's root."""
EMPTY: tuple[Any, ...] = (None, {}, [], "")
"""What says nothing, wherever it stands."""


class Fate(str, Enum):
    """What becomes of a field."""

    CONVERTED = "converted"
    """It stands in the TrainJob."""
    MOVED = "moved"
    """It stands in the TrainingRuntime that is made for this job."""
    DROPPED = "dropped"
    """It has no place in the new objects and is not missed, or hardly; the line's reason says why."""
    REFUSED = "refused"
    """A blocker: no TrainJob is made before a person has changed or removed it."""


@dataclass(frozen=True)
class Line:
    """One field, or a part of the document whose fields share a fate.

    Attributes:
        path: such as `spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[2].value`.
        fate: what became of it.
        target: the field of the new object that has it now; empty when none has.
        reason: why, where that is not plain.
        given: its value, shortened; `***` where it could be a secret.
    """

    path: str
    fate: Fate
    target: str
    reason: str
    given: str

    def to_dict(self) -> dict[str, str]:
        """The line as JSON has it."""
        return {**asdict(self), "fate": self.fate.value}


@dataclass(frozen=True)
class _Entry:
    fate: Fate
    target: str
    reason: str


class Ledger:
    """Every leaf of a document, and who claimed it.

    A claim takes the leaves below a path that nobody has claimed yet: as one line when that is all of them, else as a
    line for each, so that every leaf is in exactly one line. A leaf is a scalar, or a mapping or list with nothing in
    it.

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
        """It stands at `target` in the TrainJob."""
        self._claim(path, _Entry(Fate.CONVERTED, target, reason))

    def moved(self, path: Path, target: str, reason: str = "") -> None:
        """It stands at `target` in the generated TrainingRuntime."""
        self._claim(path, _Entry(Fate.MOVED, target, reason))

    def dropped(self, path: Path, reason: str) -> None:
        """It is left out."""
        self._claim(path, _Entry(Fate.DROPPED, "", reason))

    def refused(self, path: Path, reason: str) -> None:
        """It keeps a TrainJob from being made; so does what is not there and should be."""
        entry = _Entry(Fate.REFUSED, "", reason)
        self._claim(path, entry)
        if path not in self._below:
            self._lines[path] = entry

    def lines(self) -> tuple[Line, ...]:
        """A line for everything, in the document's order; what nobody claimed and says something is refused."""
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
    """The path of each leaf, in the document's order."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list | tuple) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def value_at(source: Any, path: Path) -> Any:
    """What stands at the path of a leaf."""
    for part in path:
        source = source[part]
    return source


def written(path: Path) -> str:
    """A path as people write it; a key that holds a dot stands in brackets."""
    text = ""
    for part in path:
        plain = isinstance(part, str) and part.replace("_", "").replace("-", "").isalnum()
        text += f".{part}" if plain else f"[{part}]" if isinstance(part, int) else f'["{part}"]'
    return text.removeprefix(".")

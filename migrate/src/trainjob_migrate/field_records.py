"""Records of the conversion of each field, so that no field is dropped without a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from trainjob.spec.redaction import excerpt, redact
from trainjob_migrate.templates import describe_placeholder

Path = tuple[str | int, ...]
"""Keys and indexes from the document's root."""
EMPTY_VALUES: tuple[Any, ...] = (None, {}, [], "")
"""Values that count as empty in any field."""


class FieldResult(str, Enum):
    """The result of the conversion for a field."""

    CONVERTED = "converted"
    """The field is in the TrainJob."""
    MOVED = "moved"
    """The field is in the TrainingRuntime that is generated for this job."""
    DROPPED = "dropped"
    """The field has no counterpart in the new objects, with little or no effect.

    `FieldRecord.reason` has the explanation.
    """
    REFUSED = "refused"
    """The field blocks the conversion until the user changes or removes it."""


@dataclass(frozen=True)
class FieldRecord:
    """One field, or a part of the document whose fields have the same result.

    Attributes:
        path: path of the field, such as `spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[2].value`.
        result: the result of the conversion.
        target: field of the new object that holds the value; empty if no field does.
        reason: the reason, unless it is obvious.
        given: value of the field, shortened; `***` if it could be a secret.
    """

    path: str
    result: FieldResult
    target: str
    reason: str
    given: str

    def to_dict(self) -> dict[str, str]:
        """Return the record as JSON values."""
        return {**asdict(self), "result": self.result.value}


@dataclass(frozen=True)
class _Result:
    result: FieldResult
    target: str
    reason: str


class FieldRecorder:
    """The leaves of a document with the result of each; the first result of a leaf is final.

    A leaf is a scalar, or an empty mapping or list. A result applies to the leaves below a path that have no result
    yet. If these are all leaves below the path, they share one record. Otherwise each leaf has its own record.

    Args:
        source: the document.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._source = source
        self._order = {leaf: number for number, leaf in enumerate(iterate_leaves(source))}
        self._leaves_below: dict[Path, list[Path]] = {}
        for leaf in self._order:
            for length in range(len(leaf) + 1):
                self._leaves_below.setdefault(leaf[:length], []).append(leaf)
        self._recorded: set[Path] = set()
        self._results: dict[Path, _Result] = {}

    def mark_converted(self, path: Path, target: str, reason: str = "") -> None:
        """Record a path whose value is at `target` in the TrainJob."""
        self._record(path, _Result(FieldResult.CONVERTED, target, reason))

    def mark_moved(self, path: Path, target: str, reason: str = "") -> None:
        """Record a path whose value is at `target` in the generated TrainingRuntime."""
        self._record(path, _Result(FieldResult.MOVED, target, reason))

    def mark_dropped(self, path: Path, reason: str) -> None:
        """Record a path that the new objects do not have."""
        self._record(path, _Result(FieldResult.DROPPED, "", reason))

    def mark_refused(self, path: Path, reason: str) -> None:
        """Record a path that prevents the creation of a TrainJob.

        The path may also be that of a missing field that is required.
        """
        entry = _Result(FieldResult.REFUSED, "", reason)
        self._record(path, entry)
        if path not in self._leaves_below:
            self._results[path] = entry

    def mark_unchecked(self, path: Path, cause: Path) -> None:
        """Record a path that is not checked, because another field must be changed first."""
        self.mark_dropped(path, f"not checked, because {format_path(cause)} is refused")

    def to_records(self) -> tuple[FieldRecord, ...]:
        """Return the records of all leaves, in the document's order.

        A leaf without a result is refused if it has a value, and dropped if it is empty.
        """
        copy = redact(self._source)
        for leaf in self._order:
            if leaf not in self._recorded:
                value = get_value(self._source, leaf)
                if value in EMPTY_VALUES:
                    self.mark_dropped(leaf, "the field is empty")
                else:
                    self.mark_refused(leaf, f"{_UNKNOWN_FIELD}{describe_placeholder(value)}")
        paths = sorted(self._results, key=self._position)
        return tuple(self._to_record(path, excerpt(copy, path)) for path in paths)

    def _record(self, path: Path, result: _Result) -> None:
        below = self._leaves_below.get(path, [])
        free = [leaf for leaf in below if leaf not in self._recorded]
        self._recorded.update(free)
        self._results.update(dict.fromkeys([path] if free and len(free) == len(below) else free, result))

    def _position(self, path: Path) -> int:
        below = self._leaves_below.get(path)
        return self._order[below[0]] if below else len(self._order)

    def _to_record(self, path: Path, given: str) -> FieldRecord:
        entry = self._results[path]
        return FieldRecord(format_path(path), entry.result, entry.target, entry.reason, given)


_UNKNOWN_FIELD = "unknown field, or a value of the wrong type; correct or remove it"


def iterate_leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each leaf, in the document's order."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from iterate_leaves(inner, (*path, key))
    elif isinstance(value, list | tuple) and value:
        for number, inner in enumerate(value):
            yield from iterate_leaves(inner, (*path, number))
    else:
        yield path


def get_value(source: Any, path: Path) -> Any:
    """Return the value at a path."""
    for part in path:
        source = source[part]
    return source


def format_path(path: Path) -> str:
    """Format a path; a key that contains a dot is written in brackets."""
    text = ""
    for part in path:
        plain = isinstance(part, str) and part.replace("_", "").replace("-", "").isalnum()
        text += f".{part}" if plain else f"[{part}]" if isinstance(part, int) else f'["{part}"]'
    return text.removeprefix(".")

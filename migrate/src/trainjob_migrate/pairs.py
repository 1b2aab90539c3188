"""The fields of an old and a new job in pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.spec.redaction import excerpt, shown
from trainjob_migrate.conversion import Conversion
from trainjob_migrate.ledger import Fate, Line, leaves, written

__all__ = ["Pair", "pairs"]

# What many fields of a job begin with: a replica, its pod, or one of its containers.
_PART = re.compile(r"spec\.\w+ReplicaSpecs\.\w+(?:\.template\.spec(?:\.(?:initC|c)ontainers\[\d+\])?)?(?=\.)")


@dataclass(frozen=True)
class Pair:
    """A field, and what it is now.

    Attributes:
        part: the part of the old job that it stands in, such as `spec.pytorchReplicaSpecs.Worker`; may be empty.
        before: the field in that part and its value; empty for what only the new job has.
        after: the new field and its value; or what became of it.
        fate: what became of it; None for what only the new job has.
    """

    part: str
    before: str
    after: str
    fate: Fate | None


def pairs(conversion: Conversion) -> list[Pair]:
    """All fields of the old job, in its order, then those that only the new one has."""
    train_job = conversion.train_job or {}
    copy = shown(train_job)
    values = {written(path): excerpt(copy, path) for path in _places(train_job)}
    return [*(_pair(line, values) for line in conversion.lines), *_new(conversion, train_job, values)]


def _places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Every field, those in between included."""
    for leaf in leaves(value):
        for length in range(1, len(leaf) + 1):
            yield leaf[:length]


def _pair(line: Line, values: Mapping[str, str]) -> Pair:
    begins = _PART.match(line.path)
    part = begins.group() if begins else ""
    field = line.path.removeprefix(f"{part}.") if part else line.path
    return Pair(part, f"{field}: {line.given}", _after(line, values), line.fate)


def _after(line: Line, values: Mapping[str, str]) -> str:
    """A mapping that has more than this field in it is only named."""
    value = values.get(line.target, "")
    now = f"{line.target}: {value}" if value == line.given or value[:1] not in ("", "{") else line.target
    return f"{now} ({line.reason})" if now and line.reason else now or f"{line.fate.value}: {line.reason}"


def _new(conversion: Conversion, train_job: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Pair]:
    """What no field of the old job was the reason for; a patch's targets are told from the pod on."""
    told = {line.target.partition(" ")[0] for line in conversion.lines if line.target}
    for path in leaves(train_job) if train_job else ():
        if not any(written(path[:length]) in told for length in range(1, len(path) + 1)):
            yield Pair("", "", f"{written(path)}: {values[written(path)]}", None)

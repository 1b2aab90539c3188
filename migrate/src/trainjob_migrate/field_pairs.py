"""Pairs of the fields of a v1 job and its TrainJob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.spec.redaction import excerpt, redact
from trainjob_migrate.conversion import Conversion
from trainjob_migrate.field_records import FieldRecord, FieldResult, format_path, iterate_leaves

__all__ = ["FieldPair", "pairs"]

# The common prefix of many fields of a job: a replica, its pod, or one of its containers.
_PART = re.compile(r"spec\.\w+ReplicaSpecs\.\w+(?:\.template\.spec(?:\.(?:initC|c)ontainers\[\d+\])?)?(?=\.)")


@dataclass(frozen=True)
class FieldPair:
    """A field of the old job and its counterpart in the new one.

    Attributes:
        part: the part of the old job that contains the field, such as `spec.pytorchReplicaSpecs.Worker`; may be empty.
        before: the field in that part and its value; empty if only the new job has the field.
        after: the new field and its value, or the result of the old field.
        result: the result of the old field; None if only the new job has the field.
    """

    part: str
    before: str
    after: str
    result: FieldResult | None


def pairs(conversion: Conversion) -> list[FieldPair]:
    """Return the fields of the old job, in its order, then those that only the new job has."""
    train_job = conversion.train_job or {}
    copy = redact(train_job)
    values = {format_path(path): excerpt(copy, path) for path in _list_paths(train_job)}
    return [*(_pair(record, values) for record in conversion.fields), *_new(conversion, train_job, values)]


def _list_paths(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every field, including intermediate ones."""
    for leaf in iterate_leaves(value):
        for length in range(1, len(leaf) + 1):
            yield leaf[:length]


def _pair(record: FieldRecord, values: Mapping[str, str]) -> FieldPair:
    prefix = _PART.match(record.path)
    part = prefix.group() if prefix else ""
    field = record.path.removeprefix(f"{part}.") if part else record.path
    return FieldPair(part, f"{field}: {record.given}", _after(record, values), record.result)


def _after(record: FieldRecord, values: Mapping[str, str]) -> str:
    """Format the new field.

    The value is left out if it is a mapping that contains more than this field.
    """
    value = values.get(record.target, "")
    is_shown = value == record.given or value[:1] not in ("", "{")
    after = f"{record.target}: {value}" if is_shown else record.target
    if after and record.reason:
        return f"{after} ({record.reason})"
    return after or f"{record.result.value}: {record.reason}"


def _new(conversion: Conversion, train_job: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[FieldPair]:
    """Yield the fields that do not result from a field of the old job.

    The targets of a patch are paths that start at the pod.
    """
    targets = {record.target.partition(" ")[0] for record in conversion.fields if record.target}
    for path in iterate_leaves(train_job) if train_job else ():
        if not any(format_path(path[:length]) in targets for length in range(1, len(path) + 1)):
            yield FieldPair("", "", f"{format_path(path)}: {values[format_path(path)]}", None)

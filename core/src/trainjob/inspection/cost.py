"""Pod hours and GPU hours of many TrainJobs, by label; no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest import labels
from trainjob.status import Phase, Usage, compute_usage, derive_verdict
from trainjob.status.nested_fields import get_mapping, get_str
from trainjob.status.pods import JOBSET_LABEL

SHORT_NAMES: Mapping[str, str] = {
    name.rpartition("/")[2]: name for name in (labels.ENGINE, labels.WORKFLOW, labels.TASK, labels.RUN)
}
"""Labels of this project by their names without prefix, for example `workflow`."""
_MAX_PROBLEMS = 10  # an error names at most this many lines
_FIELDS = "job, namespace, uid, phase and usage, as Outcome.to_dict returns them"


@dataclass(frozen=True)
class JobUsage:
    """Usage of one TrainJob, with the facts by which it is grouped.

    Attributes:
        namespace: namespace of the TrainJob.
        name: name of the TrainJob.
        uid: uid of the TrainJob.
        phase: its phase; the usage of a TrainJob that has not ended is that until now.
        labels: its labels.
        usage: its usage.
    """

    namespace: str
    name: str
    uid: str
    phase: Phase
    labels: Mapping[str, str]
    usage: Usage


@dataclass(frozen=True)
class UsageGroup:
    """Sum over the TrainJobs with the same value of a label.

    Attributes:
        value: value of the label; None for TrainJobs without the label.
        trainjobs: number of TrainJobs.
        active: number of those that have not ended; they count until now.
        incomplete: number of those that have ended and whose usage is a lower bound.
        usage: sum of their usage.
    """

    value: str | None
    trainjobs: int
    active: int
    incomplete: int
    usage: Usage

    @classmethod
    def empty(cls) -> UsageGroup:
        """Return the sum over no TrainJobs."""
        return cls("", 0, 0, 0, Usage())

    def to_dict(self) -> dict[str, Any]:
        """Return the group as JSON values."""
        counts = {"trainjobs": self.trainjobs, "active": self.active, "incomplete": self.incomplete}
        seconds = self.usage.to_dict()
        del seconds["complete"]  # `active` and `incomplete` say why
        return {"value": self.value, **counts, **seconds}


def read_job_usages(
    jobs: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], now: datetime
) -> list[JobUsage]:
    """Return the usage of each TrainJob that exists.

    Args:
        jobs: the TrainJobs.
        pods: pods of any TrainJobs in the same namespaces.
        now: current time.
    """
    by_job: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pod in pods:
        place = get_str(pod, "metadata", "namespace"), get_str(pod, "metadata", "labels", JOBSET_LABEL)
        by_job.setdefault(place, []).append(pod)
    return [_read_job_usage(job, by_job, now) for job in jobs]


def _read_job_usage(
    job: Mapping[str, Any], pods: Mapping[tuple[str, str], list[Mapping[str, Any]]], now: datetime
) -> JobUsage:
    meta = get_mapping(job, "metadata")
    namespace, name, created = (get_str(meta, field) for field in ("namespace", "name", "creationTimestamp"))
    # Older pods belong to an earlier TrainJob of the same name.
    own = [pod for pod in pods.get((namespace, name), ()) if get_str(pod, "metadata", "creationTimestamp") >= created]
    return JobUsage(
        namespace=namespace,
        name=name,
        uid=get_str(meta, "uid"),
        phase=derive_verdict(job, own).phase,
        labels={key: str(value) for key, value in get_mapping(meta, "labels").items()},
        usage=compute_usage(job, own, now),
    )


def parse_job_usages(lines: Iterable[str], source: str) -> list[JobUsage]:
    """Return the usages in an export, which has one outcome as JSON on each line.

    Empty lines are ignored, and so are other keys than those of [JobUsage][]. An outcome without usage, for example of
    an older version, counts as a TrainJob with an incomplete usage of 0.

    Args:
        lines: lines of the export.
        source: name of the file, for errors.

    Raises:
        InvalidSpec: lines are invalid; the error names the first 10 as `source:line`.
    """
    return list(_parse_lines(lines, source))


def _parse_lines(lines: Iterable[str], source: str) -> Iterator[JobUsage]:
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _parse_line(line)
        except (KeyError, TypeError, ValueError) as error:
            cause = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            rule = f"it must be one JSON object with {_FIELDS} ({cause})"
            problems.append(Problem(f"{source}:{number}", _shorten(line), rule))
        if len(problems) == _MAX_PROBLEMS:
            break
    if problems:
        raise InvalidSpec(problems)


def _parse_line(line: str) -> JobUsage:
    values = json.loads(line)
    if not isinstance(values, dict):
        raise TypeError(f"it is a {type(values).__name__}")
    texts = {name: values[name] for name in ("namespace", "job", "uid")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} must be a text that is not empty")
    found, usage = values.get("labels") or {}, values["usage"]
    if not isinstance(found, dict) or not isinstance(usage, dict | None):
        raise TypeError("labels and usage must be objects")
    return JobUsage(
        namespace=texts["namespace"],
        name=texts["job"],
        uid=texts["uid"],
        phase=Phase(values["phase"]),
        labels={str(key): str(value) for key, value in found.items()},
        usage=Usage(complete=False) if usage is None else Usage.from_dict(usage),
    )


def _shorten(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def group_usages(usages: Iterable[JobUsage], by: str = "") -> list[UsageGroup]:
    """Return the sums by the values of a label, the most GPU seconds first.

    Each TrainJob counts once by its uid. If it is in the input several times, the complete usage counts, otherwise the
    largest.

    Args:
        usages: usages of TrainJobs, from any number of sources.
        by: a label, a key of [SHORT_NAMES][], or `namespace`; empty returns one group of all TrainJobs.
    """
    best: dict[str, JobUsage] = {}
    for each in usages:
        best[each.uid] = max(best.get(each.uid, each), each, key=_rank)
    groups: dict[str | None, list[JobUsage]] = {}
    for each in best.values():
        groups.setdefault(_group_value(each, by), []).append(each)
    return sorted(
        (_sum_up(value, members) for value, members in groups.items()),
        key=lambda group: (-group.usage.gpu_seconds, -group.usage.pod_seconds, group.value is None, group.value or ""),
    )


def _rank(usage: JobUsage) -> tuple[bool, float, float, bool]:
    return usage.usage.complete, usage.usage.pod_seconds, usage.usage.gpu_seconds, usage.phase.finished


def _group_value(usage: JobUsage, by: str) -> str | None:
    if not by:
        return ""
    return usage.namespace if by == "namespace" else usage.labels.get(SHORT_NAMES.get(by, by))


def _sum_up(value: str | None, members: list[JobUsage]) -> UsageGroup:
    return UsageGroup(
        value=value,
        trainjobs=len(members),
        active=sum(not each.phase.finished for each in members),
        incomplete=sum(each.phase.finished and not each.usage.complete for each in members),
        usage=sum((each.usage for each in members), Usage()),
    )

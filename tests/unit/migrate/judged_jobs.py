"""Public v1 jobs, each judged by hand before the converter saw it.

Each file below `public_jobs` has two documents: the judgment, and the job. The job is a minimal document of our own
with the facts of the public one. The jobs of the folder `aside` were kept aside for the measurement: no rule of the
converter was written for them before it. docs/evidence/migration.md has the results.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import yaml

from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.report import ConvertedJob, MigrationReport, convert_all
from trainjob_migrate.sources import read_jobs

FOLDER = Path(__file__).resolve().parent / "public_jobs"
JOBS = {f"{path.parent.name}/{path.stem}": path for path in sorted(FOLDER.glob("*/*.yaml"))}


class Verdict(str, Enum):
    """The right result for a public job."""

    CONVERTED = "converted"
    """A TrainJob can do the same work."""
    REFUSED = "refused"
    """A TrainJob cannot do the same work, or the job is invalid."""
    REPORTED = "reported"
    """The text is no v1 job by itself: a template, a job inside another object, or a job of another operator."""


@dataclass(frozen=True)
class Judgment:
    """The judgment of one job.

    Attributes:
        verdict: the right result.
        why: the facts that decide.
        nodes: number of nodes of the TrainJob; None if it is not converted.
        findings: words of which each must be in a finding, in a record of a field, or in a read error.
        refused: beginnings of the paths of refused fields.
        pod: texts that must be in the new objects, written as YAML.
        differs: why the converter's result differs from the judgment on purpose; empty if it must not.
    """

    verdict: Verdict
    why: str
    nodes: int | None = None
    findings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    differs: str = ""


class Outcome(str, Enum):
    """The converter's result, compared with the judgment."""

    RIGHT = "right"
    WRONG = "wrong"
    """Converted, but not to the same work, or without a finding that the user needs."""
    REFUSED_RIGHTLY = "correctly refused"
    REFUSED_WRONGLY = "wrongly refused"
    CRASHED = "crashed"


@dataclass
class Measurement:
    """The outcome of one job, with all differences from its judgment."""

    outcome: Outcome
    differences: list[str] = field(default_factory=list)


@functools.cache
def load(name: str) -> tuple[Judgment, str]:
    """Return the judgment and the text of a job."""
    head, _, text = JOBS[name].read_text("utf-8").partition("\n---\n")
    fields = yaml.safe_load(head)["judgment"]
    lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return Judgment(**{**fields, **lists, "verdict": Verdict(fields["verdict"])}), text


def measure(name: str) -> Measurement:
    """Convert a public job, and compare the result with its judgment."""
    judgment, text = load(name)
    try:
        report = convert_all(read_jobs(text, name), dialect=Dialect.V2_2, launch=Launch.ENVIRONMENT)
    except Exception as error:  # noqa: BLE001 - any error of the converter is a measured crash
        return Measurement(Outcome.CRASHED, [repr(error)])
    return _compare(judgment, report)


def _compare(judgment: Judgment, report: MigrationReport) -> Measurement:
    reasons = [reason.lower() for reason in _reasons(report)]
    missing = [f"no finding with {word!r}" for word in judgment.findings if not _contains(reasons, word.lower())]
    if judgment.verdict is Verdict.REPORTED:
        silent = not (report.jobs or report.read_errors or report.skipped)
        differences = [*(["the text is passed by"] if silent else []), *missing]
        return Measurement(Outcome.WRONG if differences else Outcome.REFUSED_RIGHTLY, differences)
    is_converted = bool(report.jobs) and report.is_complete
    if judgment.verdict is Verdict.REFUSED:
        if is_converted:
            return Measurement(Outcome.WRONG, ["it is converted"])
        paths = [record.path for job in report.refused for record in job.conversion.blockers]
        accepted = [f"{path} is not refused" for path in judgment.refused if not _has_prefix(paths, path)]
        return Measurement(Outcome.REFUSED_RIGHTLY, [*accepted, *missing])
    if not is_converted:
        return Measurement(Outcome.REFUSED_WRONGLY, list(_reasons(report)))
    differences = [*_compare_objects(judgment, report.jobs), *missing]
    return Measurement(Outcome.WRONG if differences else Outcome.RIGHT, differences)


def _compare_objects(judgment: Judgment, jobs: tuple[ConvertedJob, ...]) -> Iterator[str]:
    objects = [one for job in jobs for one in (job.conversion.runtime, job.conversion.train_job) if one]
    nodes = [job.conversion.train_job["spec"]["trainer"].get("numNodes", 1) for job in jobs if job.conversion.train_job]
    if judgment.nodes is not None and nodes != [judgment.nodes]:
        yield f"nodes: {nodes} instead of {judgment.nodes}"
    text = yaml.safe_dump_all(objects, width=1 << 20, allow_unicode=True)
    yield from (f"{part!r} is not in the objects" for part in judgment.pod if part not in text)


def _contains(texts: list[str], part: str) -> bool:
    return any(part in text for text in texts)


def _reasons(report: MigrationReport) -> Iterator[str]:
    """Yield everything that the report says beside the converted fields."""
    for job in report.jobs:
        yield job.conversion.kind
        yield from (" ".join(finding.to_dict().values()) for finding in job.conversion.findings)
        for record in job.conversion.fields:
            if record.reason:
                yield f"{record.path}: {record.reason}"
    yield from (error.reason for error in report.read_errors)
    yield from report.skipped


def _has_prefix(paths: list[str], prefix: str) -> bool:
    return any(path.startswith(prefix) for path in paths)


def count_outcomes(names: Iterable[str]) -> dict[Outcome, int]:
    """Return the number of jobs by outcome."""
    outcomes = [measure(name).outcome for name in names]
    return {outcome: outcomes.count(outcome) for outcome in Outcome}

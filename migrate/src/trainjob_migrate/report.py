"""Report about any number of converted jobs: their classes, their fields, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest import Dialect
from trainjob.spec.yaml_documents import SourceDocument
from trainjob_migrate.conversion import Conversion, Finding, Launch, Readiness, convert
from trainjob_migrate.embedded_jobs import EmbeddedJob, Owner, replace_jobs
from trainjob_migrate.field_records import FieldRecord, FieldResult
from trainjob_migrate.sources import ReadError, Sources

__all__ = ["ConvertedJob", "MigrationReport", "convert_all", "format_markdown"]


@dataclass(frozen=True)
class ConvertedJob:
    """One converted job.

    Attributes:
        origin: where the job was found.
        conversion: the result of its conversion.
        embedded: the place of the job inside another object; None if the job is an object of its own.
        document: the document of a file that has the job; None if the job is from a cluster, or in a text.
    """

    origin: str
    conversion: Conversion
    embedded: EmbeddedJob | None = None
    document: SourceDocument | None = None

    def locate(self, field: str) -> str:
        """Return the file and line of a field, or where the job was found if that is not known."""
        return self.document.locate(field) if self.document else self.origin

    def to_dict(self) -> dict[str, Any]:
        """Return the conversion as JSON values, with origin and locations of blockers."""
        blockers = [{**record.to_dict(), "location": self.locate(record.path)} for record in self.conversion.blockers]
        return {"origin": self.origin, **self.conversion.to_dict(), "blockers": blockers}

    def __str__(self) -> str:
        return f"{self.conversion.kind} {'/'.join(filter(None, (self.conversion.namespace, self.conversion.name)))}"


@dataclass(frozen=True)
class MigrationReport:
    """The converted jobs of all given sources.

    Attributes:
        jobs: the jobs that could be converted or are refused.
        read_errors: documents that could not be read or are not valid v1 jobs.
        skipped: number of skipped objects of other kinds, by kind.
    """

    jobs: tuple[ConvertedJob, ...]
    read_errors: tuple[ReadError, ...]
    skipped: Mapping[str, int]

    @property
    def refused(self) -> tuple[ConvertedJob, ...]:
        """The jobs for which no TrainJob is created."""
        return tuple(job for job in self.jobs if job.conversion.blockers)

    @property
    def is_complete(self) -> bool:
        """Return whether all given documents were read and all jobs have a TrainJob."""
        return not self.refused and not self.read_errors

    def convert_owners(self) -> list[tuple[Owner, list[dict[str, Any]]]]:
        """Return the objects that contain jobs, with the documents that replace them.

        The documents are the generated runtimes, and the object with TrainJobs. An object of which a job is refused is
        left out.
        """
        groups: dict[int, list[ConvertedJob]] = {}
        for job in self.jobs:
            if job.embedded:
                groups.setdefault(id(job.embedded.owner), []).append(job)
        converted = []
        for jobs in groups.values():
            pairs = [
                (job.embedded, job.conversion.train_job) for job in jobs if job.embedded and job.conversion.train_job
            ]
            if len(pairs) == len(jobs):
                owner = pairs[0][0].owner
                runtimes = [job.conversion.runtime for job in jobs if job.conversion.runtime]
                converted.append((owner, [*runtimes, replace_jobs(owner, pairs)]))
        return converted

    def count_by_readiness(self) -> dict[Readiness, int]:
        """Return the number of jobs by class; refused jobs are not counted."""
        counts = Counter(job.conversion.readiness for job in self.jobs if not job.conversion.blockers)
        return {readiness: counts[readiness] for readiness in Readiness}

    def group_blockers(self) -> list[tuple[str, list[str]]]:
        """Return the reasons why jobs are refused, with the jobs; the most frequent first."""
        return _group_jobs((record.reason, job) for job in self.jobs for record in job.conversion.blockers)

    def group_findings(self) -> list[tuple[str, list[str]]]:
        """Return the topics of the findings, with the jobs; the most frequent first."""
        return _group_jobs((finding.topic, job) for job in self.jobs for finding in job.conversion.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, with `***` for values that could be secrets.

        `summary` has the numbers `jobs`, `classes`, `refused` and `read_errors`, the number of `skipped` objects by
        kind, and `blockers` and `findings`. Each blocker has `reason` and `jobs`, each finding `topic` and `jobs`.
        `jobs` has the conversion and the `origin` of each job, and the `location` of each blocker. Each of
        `read_errors` has `origin` and `reason`.
        """
        return {
            "summary": {
                "jobs": len(self.jobs),
                "classes": {readiness.value: count for readiness, count in self.count_by_readiness().items()},
                "refused": len(self.refused),
                "read_errors": len(self.read_errors),
                "skipped": dict(self.skipped),
                "blockers": [{"reason": reason, "jobs": names} for reason, names in self.group_blockers()],
                "findings": [{"topic": topic, "jobs": names} for topic, names in self.group_findings()],
            },
            "jobs": [job.to_dict() for job in self.jobs],
            "read_errors": [{"origin": one.origin, "reason": one.reason} for one in self.read_errors],
        }


def convert_all(sources: Sources, *, dialect: Dialect, launch: Launch) -> MigrationReport:
    """Convert all jobs of the sources.

    Args:
        sources: the jobs, and the documents that could not be read.
        dialect: version of the TrainJob API.
        launch: how a program that reads the operator's variables gets them.
    """
    jobs, read_errors = [], list(sources.read_errors)
    for found in sources.jobs:
        try:
            conversion = convert(found.job, dialect=dialect, launch=launch)
            if found.embedded:
                conversion = _apply_place(conversion, found.embedded)
            jobs.append(ConvertedJob(found.origin, conversion, found.embedded, found.document))
        except InvalidSpec as error:
            fields = [problem.field for problem in error.problems]
            origin = found.document.locate(*fields) if found.document else found.origin
            read_errors.append(ReadError(origin, error.message))
    return MigrationReport(tuple(jobs), tuple(read_errors), dict(sources.skipped))


def _apply_place(conversion: Conversion, embedded: EmbeddedJob) -> Conversion:
    """Add what the place of a job inside another object means for its conversion."""
    is_refused = bool(conversion.blockers or embedded.refusal)
    place = embedded.describe_place(is_refused=is_refused)
    conversion = replace(conversion, findings=(place, *conversion.findings))
    if not embedded.refusal:
        return conversion
    fields = tuple(
        replace(record, result=FieldResult.REFUSED, target="", reason=embedded.refusal)
        if record.path == "kind"
        else record
        for record in conversion.fields
    )
    return replace(conversion, fields=fields, train_job=None, runtime=None)


def _group_jobs(pairs: Iterable[tuple[str, ConvertedJob]]) -> list[tuple[str, list[str]]]:
    """Group the jobs by key, largest group first.

    A job is in a group only once; two different jobs may have the same name.
    """
    groups: dict[str, dict[int, str]] = {}
    for key, job in pairs:
        groups.setdefault(key, {})[id(job)] = str(job)
    return sorted(((key, list(names.values())) for key, names in groups.items()), key=lambda group: -len(group[1]))


# -- Markdown -----------------------------------------------------------------------------------------------------


def format_markdown(report: MigrationReport) -> str:
    """Format the report as Markdown for a wiki or a pull request: a summary, then each job."""
    return "\n".join([*_summary(report), *(line for job in report.jobs for line in _job(job))]) + "\n"


def _summary(report: MigrationReport) -> Iterator[str]:
    yield "# From the Training Operator v1 to TrainJobs"
    yield ""
    counts = [(readiness.value, count) for readiness, count in report.count_by_readiness().items()]
    yield from _table(
        ("Class", "Jobs"), [*counts, ("refused", len(report.refused)), ("could not be read", len(report.read_errors))]
    )
    if report.skipped:
        skipped = ", ".join(f"{kind} {count}" for kind, count in sorted(report.skipped.items()))
        yield from (f"Skipped objects of other kinds: {_escape(skipped)}.", "")
    for title, groups in (("Why jobs are refused", report.group_blockers()), ("Findings", report.group_findings())):
        if groups:
            yield from (f"## {title}", "")
            yield from _table(
                ("", "Jobs", "Names"),
                [(_escape(key), len(names), _escape(", ".join(names))) for key, names in groups],
            )
    if report.read_errors:
        yield from ("## Documents that could not be read", "")
        yield from _table(
            ("Document", "Reason"), [(_code(one.origin), _escape(one.reason)) for one in report.read_errors]
        )


def _job(job: ConvertedJob) -> Iterator[str]:
    conversion = job.conversion
    yield from (f"## {_escape(str(job))}: {conversion.verdict}", "", f"From {_escape(job.origin)}.", "")
    for finding in conversion.findings:
        yield f"* {_finding(finding)}"
    if conversion.findings:
        yield ""
    yield from _table(
        ("Field", "Value", "Result", "New field", "Reason"), [_field(record) for record in conversion.fields]
    )


def _finding(finding: Finding) -> str:
    return f"**{_escape(finding.what)}** {_escape(finding.why)} *{_escape(finding.done)}*"


def _field(record: FieldRecord) -> tuple[str, ...]:
    return (
        _code(record.path),
        _code(record.given),
        record.result.value,
        _code(record.target),
        _escape(record.reason),
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def _escape(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    for sign in "\\`*_{}[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _code(text: str) -> str:
    """Format a text as inline code, on one line."""
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""

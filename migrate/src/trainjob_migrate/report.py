"""What is told of any number of jobs before they move: each one's class and fields, and all of them in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest import Dialect
from trainjob_migrate.conversion import Conversion, Finding, Launch, Readiness, convert
from trainjob_migrate.ledger import Line
from trainjob_migrate.sources import Sources, Unread

__all__ = ["Migrated", "Survey", "markdown", "survey"]


@dataclass(frozen=True)
class Migrated:
    """One job.

    Attributes:
        origin: where it was found.
        conversion: what became of it.
    """

    origin: str
    conversion: Conversion

    def __str__(self) -> str:
        return f"{self.conversion.kind} {'/'.join(filter(None, (self.conversion.namespace, self.conversion.name)))}"


@dataclass(frozen=True)
class Survey:
    """All jobs of some places.

    Attributes:
        jobs: those that could be looked at.
        unread: what could not be read, and jobs that are none.
        others: how many objects of other kinds were passed by, by kind.
    """

    jobs: tuple[Migrated, ...]
    unread: tuple[Unread, ...]
    others: Mapping[str, int]

    @property
    def refused(self) -> tuple[Migrated, ...]:
        """The jobs for which no TrainJob is made."""
        return tuple(job for job in self.jobs if job.conversion.blockers)

    @property
    def is_clean(self) -> bool:
        """Whether there is a TrainJob for everything that was given."""
        return not self.refused and not self.unread

    def classes(self) -> dict[Readiness, int]:
        """How many jobs each class has; those that are refused are in none."""
        counts = Counter(job.conversion.readiness for job in self.jobs if not job.conversion.blockers)
        return {readiness: counts[readiness] for readiness in Readiness}

    def blockers(self) -> list[tuple[str, list[str]]]:
        """Why jobs are refused, and which; the reason that most of them have first."""
        return _grouped((line.reason, job) for job in self.jobs for line in job.conversion.blockers)

    def topics(self) -> list[tuple[str, list[str]]]:
        """What their findings are about, and whose; the most frequent first."""
        return _grouped((finding.topic, job) for job in self.jobs for finding in job.conversion.findings)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, with `***` for what could be a secret.

        `summary` has `jobs`, `classes`, `refused`, `unread` (numbers), `passed_by` (numbers by kind), `blockers` and
        `findings` (`reason` or `topic`, and the `jobs`); `jobs` has each job's conversion and `origin`; `unread` has
        `origin` and `reason`.
        """
        return {
            "summary": {
                "jobs": len(self.jobs),
                "classes": {readiness.value: count for readiness, count in self.classes().items()},
                "refused": len(self.refused),
                "unread": len(self.unread),
                "passed_by": dict(self.others),
                "blockers": [{"reason": reason, "jobs": names} for reason, names in self.blockers()],
                "findings": [{"topic": topic, "jobs": names} for topic, names in self.topics()],
            },
            "jobs": [{"origin": job.origin, **job.conversion.to_dict()} for job in self.jobs],
            "unread": [{"origin": one.origin, "reason": one.reason} for one in self.unread],
        }


def survey(sources: Sources, *, dialect: Dialect, launch: Launch) -> Survey:
    """Convert all jobs that were found.

    Args:
        sources: what was found.
        dialect: the shape of the TrainJob API.
        launch: how a program that relies on the operator's variables is to get them.
    """
    jobs, unread = [], list(sources.unread)
    for found in sources.jobs:
        try:
            jobs.append(Migrated(found.origin, convert(found.job, dialect=dialect, launch=launch)))
        except InvalidSpec as error:
            unread.append(Unread(found.origin, error.message))
    return Survey(tuple(jobs), tuple(unread), dict(sources.others))


def _grouped(pairs: Iterable[tuple[str, Migrated]]) -> list[tuple[str, list[str]]]:
    """Each job once in a group; two of them may have the same name."""
    groups: dict[str, dict[int, str]] = {}
    for key, job in pairs:
        groups.setdefault(key, {})[id(job)] = str(job)
    return sorted(((key, list(names.values())) for key, names in groups.items()), key=lambda group: -len(group[1]))


# -- Markdown -----------------------------------------------------------------------------------------------------


def markdown(told: Survey) -> str:
    """The report for a wiki or a pull request: the summary, then each job."""
    return "\n".join([*_summary(told), *(line for job in told.jobs for line in _job(job))]) + "\n"


def _summary(told: Survey) -> Iterator[str]:
    yield "# From the Training Operator v1 to TrainJobs"
    yield ""
    counts = [(readiness.value, count) for readiness, count in told.classes().items()]
    yield from _table(
        ("Class", "Jobs"), [*counts, ("refused", len(told.refused)), ("could not be read", len(told.unread))]
    )
    if told.others:
        passed = ", ".join(f"{kind} {count}" for kind, count in sorted(told.others.items()))
        yield from (f"Passed by, as they are no such jobs: {_escaped(passed)}.", "")
    for title, groups in (("Why jobs are refused", told.blockers()), ("What to know", told.topics())):
        if groups:
            yield from (f"## {title}", "")
            yield from _table(
                ("", "Jobs", "Which"),
                [(_escaped(key), len(names), _escaped(", ".join(names))) for key, names in groups],
            )
    if told.unread:
        yield from ("## What could not be read", "")
        yield from _table(("Where", "Why"), [(_code(one.origin), _escaped(one.reason)) for one in told.unread])


def _job(job: Migrated) -> Iterator[str]:
    conversion = job.conversion
    verdict = "refused" if conversion.blockers else conversion.readiness.value
    yield from (f"## {_escaped(str(job))}: {verdict}", "", f"From {_escaped(job.origin)}.", "")
    for finding in conversion.findings:
        yield f"* {_finding(finding)}"
    if conversion.findings:
        yield ""
    yield from _table(("Field", "Value", "", "Now", "Why"), [_field(line) for line in conversion.lines])


def _finding(finding: Finding) -> str:
    return f"**{_escaped(finding.what)}** {_escaped(finding.why)} *{_escaped(finding.done)}*"


def _field(line: Line) -> tuple[str, ...]:
    return _code(line.path), _code(line.given), line.fate.value, _code(line.target), _escaped(line.reason)


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def _escaped(text: str) -> str:
    """Text that is only text in Markdown, on one line."""
    for sign in "\\`*_{}[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _code(text: str) -> str:
    """Text as it is written, on one line."""
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""

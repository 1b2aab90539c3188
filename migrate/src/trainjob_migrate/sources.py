"""Reading of Training Operator v1 jobs from texts with several documents and Lists.

Jobs inside objects of other kinds are found, too; other objects are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest.request_parser import is_v1_job
from trainjob.spec.trainer_versions import find_version_problems
from trainjob.spec.yaml_documents import SourceDocument, parse_yaml, split_documents
from trainjob.status.nested_fields import get_str
from trainjob_migrate.embedded_jobs import EmbeddedJob, find_embedded_jobs
from trainjob_migrate.identity import KINDS
from trainjob_migrate.unreadable_texts import describe_read_error

__all__ = ["FoundJob", "ReadError", "Sources", "read_jobs"]

_MAX_LENGTH = 64 << 20  # characters of one document; kubectl prints thousands of jobs as one List


@dataclass(frozen=True)
class FoundJob:
    """One job that was found.

    Attributes:
        origin: where the job was found: a file and the line of its document, or a cluster.
        job: the object as written.
        embedded: the place of the job inside another object; None if the job is an object of its own.
        document: the document of a file that has the job; None if the job is from a cluster, or in a text.
    """

    origin: str
    job: Mapping[str, Any]
    embedded: EmbeddedJob | None = None
    document: SourceDocument | None = None


@dataclass(frozen=True)
class ReadError:
    """An error for a document or file that could not be read.

    Attributes:
        origin: the file, and the line of the document.
        reason: the reason, without the text itself, which may contain secrets.
    """

    origin: str
    reason: str


@dataclass
class Sources:
    """The content of all given files or of a cluster.

    Attributes:
        jobs: the jobs, in their order.
        read_errors: the documents and files that could not be read.
        skipped: number of skipped objects of other kinds, by kind; the kinds of the Training Operator in another API
            group are named with their group.
    """

    jobs: list[FoundJob] = field(default_factory=list)
    read_errors: list[ReadError] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, more: Sources) -> None:
        """Add the content of another source."""
        self.jobs += more.jobs
        self.read_errors += more.read_errors
        self.skipped += more.skipped


def read_jobs(text: str, origin: str) -> Sources:
    """Read the jobs of a text in YAML or JSON.

    A document that cannot be read is reported with the reason; the other documents are still read.

    Args:
        text: any number of documents; the items of a List count as documents.
        origin: name of the text, such as the path of a file.
    """
    sources = Sources()
    for line, document in split_documents(text):
        where = f"{origin}:{line}"
        try:
            content = parse_yaml(document, first_line=line, max_length=_MAX_LENGTH)
        except InvalidSpec as error:
            reason = describe_read_error(document, error, first_line=line, source=text)
            sources.read_errors.append(ReadError(where, reason))
            continue
        for inner, place, thing in _objects(content, where):
            if is_v1_job(thing):
                source = SourceDocument(origin, line, document, place)
                sources.jobs.append(FoundJob(inner, thing, document=source))
            elif get_str(thing, "kind") == "TrainJob" and (problems := list(find_version_problems(thing))):
                sources.read_errors.append(ReadError(inner, InvalidSpec(problems).message))
            elif thing is not None:
                _add_embedded_jobs(sources, inner, thing, SourceDocument(origin, line, document, place))
    return sources


def _add_embedded_jobs(sources: Sources, where: str, thing: Any, document: SourceDocument) -> None:
    """Add the jobs inside an object of another kind; an object without jobs is counted."""
    found = find_embedded_jobs(thing)
    for one in found.jobs:
        # The lines of a job in a text are not known: how the text is written decides.
        path = f"{document.place}.{one.place}".strip(".")
        source = replace(document, place=path) if one.number is None else None
        sources.jobs.append(FoundJob(f"{where} {one.place}", one.to_named_job(), one, source))
    sources.read_errors += [ReadError(f"{where} {place}", reason) for place, reason in found.unreadable.items()]
    if not found.jobs and not found.unreadable:
        sources.skipped[_kind(thing)] += 1


def _objects(content: Any, where: str) -> Iterable[tuple[str, str, Any]]:
    """Return the items of a List, or the object itself, each with its origin and its path."""
    items = content.get("items") if isinstance(content, Mapping) else content
    is_list = isinstance(content, Mapping) and str(content.get("kind", "")).endswith("List")
    if isinstance(items, list) and (is_list or isinstance(content, list)):
        list_path = "items" if is_list else ""
        return [
            (f"{where} item {number}", f"{list_path}[{number - 1}]", item) for number, item in enumerate(items, start=1)
        ]
    return [(where, "", content)]


def _kind(document: Any) -> str:
    """Return the kind of an object, with its API group if kubeflow.org has the same kind."""
    kind = get_str(document, "kind")
    if not kind:
        return "no Kubernetes object"
    group, _, _ = get_str(document, "apiVersion").rpartition("/")
    return f"{kind} of the API group {group or 'core'}, not kubeflow.org" if kind in KINDS else kind

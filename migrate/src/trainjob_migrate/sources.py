"""Finding the jobs of the training operator v1 in texts: several documents, Lists, and what is no such job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.spec.yaml_text import documents, parsed

__all__ = ["Found", "Sources", "Unread", "is_v1_job", "read"]

_GROUP = "kubeflow.org/"


@dataclass(frozen=True)
class Found:
    """One job.

    Attributes:
        origin: where it was found: a file and the line of its document, or a cluster.
        job: the object as it was written.
    """

    origin: str
    job: Mapping[str, Any]


@dataclass(frozen=True)
class Unread:
    """What could not be read.

    Attributes:
        origin: the file, and the line of the document.
        reason: why, without the text itself, which may hold secrets.
    """

    origin: str
    reason: str


@dataclass
class Sources:
    """What was found in any number of places.

    Attributes:
        jobs: the jobs, as they came.
        unread: the documents and files that could not be read.
        others: how many objects of other kinds were passed by, by kind.
    """

    jobs: list[Found] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    def add(self, more: Sources) -> None:
        """What was found in one more place."""
        self.jobs += more.jobs
        self.unread += more.unread
        self.others += more.others


def is_v1_job(thing: Any) -> bool:
    """Whether an object is a job of the training operator, or of the MPI operator, whatever its kind.

    Both operators have the group `kubeflow.org`, as have other parts of Kubeflow (Notebook, Profile). A TrainJob's
    group is another one.
    """
    if not isinstance(thing, Mapping):
        return False
    version, kind = thing.get("apiVersion"), thing.get("kind")
    return isinstance(version, str) and version.startswith(_GROUP) and isinstance(kind, str) and kind.endswith("Job")


def read(text: str, origin: str) -> Sources:
    """The jobs of a text in YAML or JSON; of a document that can't be read, why, and the others all the same.

    Args:
        text: any number of documents; a List's items count as documents.
        origin: what to call the text, such as a file's path.
    """
    sources = Sources()
    for line, document in documents(text):
        where = f"{origin}:{line}"
        try:
            content = _content(document, line)
        except InvalidSpec as error:
            sources.unread.append(Unread(where, error.problems[0].allowed))
            continue
        for inner, thing in _objects(content, where):
            if is_v1_job(thing):
                sources.jobs.append(Found(inner, thing))
            elif thing is not None:
                sources.others[_kind(thing)] += 1
    return sources


def _content(document: str, line: int) -> Any:
    """JSON as JSON, as thousands of jobs come so from kubectl, and YAML's reader is slow; what is none is YAML."""
    if document.lstrip().startswith(("{", "[")):
        try:
            return json.loads(document)
        except (ValueError, RecursionError):
            pass
    return parsed(document, first_line=line)


def _objects(content: Any, where: str) -> Iterable[tuple[str, Any]]:
    """A List's items, or the object itself."""
    items = content.get("items") if isinstance(content, Mapping) else content
    is_list = isinstance(content, Mapping) and str(content.get("kind", "")).endswith("List")
    if isinstance(items, list) and (is_list or isinstance(content, list)):
        return [(f"{where} item {number}", item) for number, item in enumerate(items, start=1)]
    return [(where, content)]


def _kind(thing: Any) -> str:
    kind = thing.get("kind") if isinstance(thing, Mapping) else None
    return kind if isinstance(kind, str) and kind else "no Kubernetes object"

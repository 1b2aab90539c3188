"""v1 jobs inside other objects: Experiments, Workflows, AppWrappers, ConfigMaps.

A job is a part of the object, or it is in a text of the object, in YAML or JSON.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest.request_parser import is_v1_job
from trainjob.spec.yaml_documents import parse_yaml, split_documents
from trainjob.spec.yaml_output import dump_yaml
from trainjob.status.nested_fields import get_mapping, get_str
from trainjob_migrate.draft import Finding
from trainjob_migrate.field_records import Path, format_path, get_value, iterate_leaves
from trainjob_migrate.identity import is_job_name
from trainjob_migrate.unreadable_texts import describe_read_error, find_job_kind
from trainjob_migrate.v1_names import V1_OBJECTS

# The status of a Workflow has copies of its templates.
_SKIPPED = (("status",), ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"))
_CONDITIONS = "successCondition and failureCondition (a TrainJob has the conditions Complete and Failed)"
_WORKFLOW = f"Adapt {_CONDITIONS}, and the permissions of the workflow's service account."
_ADVICE: Mapping[str, str] = {
    "ConfigMap": "Adapt the program that reads the text.",
    "CronWorkflow": _WORKFLOW,
    "ClusterWorkflowTemplate": _WORKFLOW,
    "Experiment": f"Adapt primaryContainerName (it is node), primaryPodLabels, {_CONDITIONS}. Add "
    "TrainJob.v1alpha1.trainer.kubeflow.org to the trial resources in Katib's configuration.",
    "Workflow": _WORKFLOW,
    "WorkflowTemplate": _WORKFLOW,
}
"""What a user has to change in an object beside its job, by kind."""
# AppWrapper 1.2, internal/webhook/appwrapper_webhook.go, rule 6: components need a pod template.
_REFUSALS: Mapping[str, str] = {
    "AppWrapper": "an AppWrapper refuses a TrainJob, because it has no pod template; move the job out of it, "
    "and give the job the label kueue.x-k8s.io/queue-name, because Kueue queues TrainJobs itself",
}
"""Reason why an object cannot contain a TrainJob, by kind."""


@dataclass(frozen=True)
class Owner:
    """An object that contains v1 jobs.

    Attributes:
        document: the object as written.
    """

    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return get_str(self.document, "kind") or "object"

    @property
    def name(self) -> str:
        """Name of the object, or the start of its generated name."""
        metadata = get_mapping(self.document, "metadata")
        return get_str(metadata, "name") or get_str(metadata, "generateName").rstrip("-")

    @property
    def title(self) -> str:
        """Kind and name of the object, for messages."""
        kind = get_str(self.document, "kind")
        return f"{kind} {self.name}".rstrip() if kind else "an object without a kind"

    @property
    def namespace(self) -> str:
        """Namespace of the object; empty if it names none."""
        return get_str(self.document, "metadata", "namespace")

    @functools.cached_property
    def references(self) -> list[str]:
        """Paths of the texts beside the jobs that refer to v1 jobs or labels."""
        skipped = {("metadata",), *_SKIPPED, *(path for path, _ in _iterate_candidates(self.document, ()))}
        return [
            format_path(leaf)
            for leaf in iterate_leaves(self.document)
            if leaf[-1] not in ("name", "template") and skipped.isdisjoint(leaf[: n + 1] for n in range(len(leaf)))
            if V1_OBJECTS.search(str(get_value(self.document, leaf)))
        ]


@dataclass(frozen=True)
class EmbeddedJob:
    """A v1 job inside another object.

    Attributes:
        owner: the object.
        path: path of the job, or of the text that contains it.
        number: index of the job's document in the text; None if the job is not in a text.
        job: the job as written.
        ordinal: number of the job among those of its owner, from 1 on.
    """

    owner: Owner
    path: Path
    number: int | None
    job: Mapping[str, Any]
    ordinal: int = 1

    @property
    def place(self) -> str:
        """Path of the job in its object, with the number of the document in a text."""
        return format_path(self.path) + ("" if self.number is None else f" document {self.number + 1}")

    def to_named_job(self) -> dict[str, Any]:
        """Return the job with a name and a namespace, which may be those of its owner.

        Katib and Argo name the jobs themselves, or the name contains a placeholder. Unnamed jobs of one owner get
        different names, because their runtimes have these names.
        """
        metadata = get_mapping(self.job, "metadata")
        suffix = f"-{self.ordinal}" if self.ordinal > 1 else ""
        candidates = (get_str(metadata, "name"), f"{self.owner.name}{suffix}", f"job{suffix}")
        rest = {key: value for key, value in metadata.items() if key not in ("name", "generateName")}
        namespace = {"namespace": self.owner.namespace} if self.owner.namespace else {}
        return {**self.job, "metadata": {**namespace, **rest, "name": next(filter(is_job_name, candidates))}}

    def restore_name(self, train_job: Mapping[str, Any]) -> dict[str, Any]:
        """Return a TrainJob with the job's own name and namespace, or without them.

        A name without a placeholder is that of the TrainJob, because the conversion shortens long names.
        """
        own = get_mapping(self.job, "metadata")
        names = {key: own[key] for key in ("name", "generateName", "namespace") if key in own}
        if is_job_name(get_str(own, "name")):
            names["name"] = train_job["metadata"]["name"]
        rest = {key: value for key, value in train_job["metadata"].items() if key not in ("name", "namespace")}
        metadata = {**names, **rest}
        other = {key: value for key, value in train_job.items() if key not in ("metadata", "spec")}
        return {**other, **({"metadata": metadata} if metadata else {}), "spec": train_job["spec"]}

    @property
    def refusal(self) -> str:
        """Reason why a TrainJob cannot be in the place of the job; empty if it can."""
        return _REFUSALS.get(self.owner.kind, "")

    def describe_place(self, *, is_refused: bool) -> Finding:
        """Return the finding with the place of the job, and with what else has to change there.

        Nothing changes in the place of a refused job.
        """
        comments = "" if self.number is None else " Comments of the text are lost."
        references = ", ".join(self.owner.references)
        place = f"`convert` writes the object with the TrainJob in this place.{comments}"
        return Finding(
            "embedded",
            f"The job is a part of {self.owner.title}, at {self.place}.",
            "The object, or the program that reads it, creates the job. It may depend on the job's kind, labels, "
            f"containers or conditions{f': see {references}' if references else ''}.",
            "Nothing is written." if is_refused else f"{place} {_ADVICE.get(self.owner.kind, 'Check it.')}",
        )


@dataclass
class EmbeddedJobs:
    """The v1 jobs inside one object.

    Attributes:
        jobs: the jobs.
        unreadable: by path of a text that seems to contain jobs, the reason why it cannot be read.
    """

    jobs: list[EmbeddedJob] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def find_embedded_jobs(document: Any) -> EmbeddedJobs:
    """Return the v1 jobs inside an object that is not itself a v1 job."""
    found = EmbeddedJobs()
    if isinstance(document, Mapping):
        owner = Owner(document)
        for path, value in _iterate_candidates(document, ()):
            if isinstance(value, str):
                _find_in_text(found, owner, path, value)
            else:
                found.jobs.append(EmbeddedJob(owner, path, None, value))
    found.jobs = [replace(job, ordinal=number) for number, job in enumerate(found.jobs, start=1)]
    return found


def _iterate_candidates(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the v1 jobs, and the texts that seem to contain one."""
    if path in _SKIPPED:
        return
    if isinstance(value, Mapping):
        if path and is_v1_job(value):
            if any(isinstance(inner, Mapping) for inner in value.values()):  # no reference, such as ownerReferences
                yield path, value
            return
        for key, inner in value.items():
            yield from _iterate_candidates(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _iterate_candidates(inner, (*path, number))
    elif isinstance(value, str) and find_job_kind(value):
        yield path, value


def _find_in_text(found: EmbeddedJobs, owner: Owner, path: Path, text: str) -> None:
    for number, (line, document) in enumerate(split_documents(text)):
        try:
            content = parse_yaml(document, first_line=line)
        except InvalidSpec as error:
            reason = describe_read_error(document, error, first_line=line, source=text)
            found.unreadable[format_path(path)] = f"in {owner.title}, {reason}; the lines are those of the text"
            continue
        if is_v1_job(content):
            found.jobs.append(EmbeddedJob(owner, path, number, content))
        elif inner := next(_iterate_candidates(content, ()), None):
            found.unreadable[format_path(path)] = (
                f"in {owner.title}, the text has a v1 job inside another object, at {format_path(inner[0])}: "
                "convert this object in a file of its own"
            )


def replace_jobs(owner: Owner, replacements: Sequence[tuple[EmbeddedJob, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the owner's document with TrainJobs in place of its jobs.

    Args:
        owner: the object that contains the jobs.
        replacements: each job of the object, with its TrainJob.
    """
    document: dict[str, Any] = json.loads(json.dumps(owner.document))
    texts: dict[Path, dict[int, Mapping[str, Any]]] = {}
    for one, train_job in replacements:
        new = one.restore_name(train_job)
        if one.number is None:
            get_value(document, one.path[:-1])[one.path[-1]] = new
        else:
            texts.setdefault(one.path, {})[one.number] = new
    for path, jobs in texts.items():
        above = get_value(document, path[:-1])
        above[path[-1]] = _replace_in_text(above[path[-1]], jobs)
    return document


def _replace_in_text(text: str, jobs: Mapping[int, Mapping[str, Any]]) -> str:
    if text.lstrip().startswith("{"):
        return json.dumps(jobs[0], indent=2)
    parts = []
    for number, (_, document) in enumerate(split_documents(text)):
        kept = document.removeprefix("---").lstrip("\n")
        parts.append(dump_yaml([jobs[number]]) if number in jobs else kept)
    return "---\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)

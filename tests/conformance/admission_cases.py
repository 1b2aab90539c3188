"""What the API server says to TrainJobs: tables of cases, asked with dry runs, so that a case costs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.kubernetes_client import Client, Object, Response, path_of
from tests.support.trainjobs import train_job

FIRST_VERSION, NO_VERSION = (0, 0), (99, 0)
VALIDATOR = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
DEFAULTER = 'admission webhook "defaulter.trainjob.trainer.kubeflow.org" denied the request: '
UNCHECKED = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation]"
)
TORCH = '{"name":"torch-distributed","apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime"}'
_TIMESTAMP = re.compile(r'"time":"[^"]+"')


@dataclass(frozen=True)
class ResponseSummary:
    """An answer in short.

    Attributes:
        code: HTTP status.
        reason: the Status object's reason.
        text: its message; the times that the Trainer stamps on patches are `now`.
    """

    code: int
    reason: str = ""
    message: str = ""

    @classmethod
    def from_response(cls, answer: Response) -> ResponseSummary:
        if answer.ok:
            return ACCEPTED
        return cls(answer.code, answer.reason, _TIMESTAMP.sub('"time":"now"', answer.message))


ACCEPTED = ResponseSummary(201)


def denied(text: str) -> ResponseSummary:
    """The validating webhook refuses."""
    return ResponseSummary(403, "Forbidden", VALIDATOR + text)


def undecodable(text: str) -> ResponseSummary:
    """The Go program behind the webhook can't read it; then there is no reason."""
    return ResponseSummary(400, "", DEFAULTER + text)


def invalid(text: str, name: str = "job") -> ResponseSummary:
    """The schema or a CEL rule of the CRD refuses."""
    return ResponseSummary(422, "Invalid", f'TrainJob.trainer.kubeflow.org "{name}" is invalid: {text}')


def invalid_schema(problem: str) -> ResponseSummary:
    """The schema refuses so that its CEL rules are not asked any more."""
    return invalid(f"[{problem}{UNCHECKED}")


def bad_request(text: str) -> ResponseSummary:
    """The API server can't take it for a TrainJob."""
    return ResponseSummary(400, "BadRequest", f'TrainJob in version "v1alpha1" cannot be handled as a TrainJob: {text}')


@dataclass(frozen=True)
class AdmissionCase:
    """A TrainJob and its answer.

    Attributes:
        title: what is special about it.
        job: the TrainJob.
        said: the answer.
        since: first version of the Trainer that answers so.
        before: first version that does not any more.
    """

    title: str
    job: Object
    expected: ResponseSummary
    since: tuple[int, int] = FIRST_VERSION
    before: tuple[int, int] = NO_VERSION


def case(
    title: str, expected: ResponseSummary, /, *, since: Any = FIRST_VERSION, before: Any = NO_VERSION, **spec: Any
) -> AdmissionCase:
    """A TrainJob on torch-distributed with these fields of its spec; one that is None is left out."""
    job = train_job()
    job["spec"] = {name: value for name, value in {**job["spec"], **spec}.items() if value is not None}
    return AdmissionCase(title, job, expected, since, before)


def trainer_case(
    title: str, expected: ResponseSummary, /, *, since: Any = FIRST_VERSION, before: Any = NO_VERSION, **trainer: Any
) -> AdmissionCase:
    """The same with these fields of its trainer."""
    return replace(case(title, expected, trainer=trainer), since=since, before=before)


def dry_run_cases(
    client: Client, namespace: str, trainer: tuple[int, int], cases: Iterable[AdmissionCase], **query: Any
) -> tuple[dict[str, ResponseSummary], dict[str, ResponseSummary]]:
    """What was said to the cases that this version knows, and what was expected; by title."""
    known = [one for one in cases if one.since <= trainer < one.before]
    query = {"dryRun": "All", **query}
    path = path_of("TrainJob", namespace)
    found = {one.title: ResponseSummary.from_response(client.request("POST", path, one.job, **query)) for one in known}
    return found, {one.title: one.expected for one in known}


def remove_problems(text: str, problems: Iterable[str]) -> str:
    """What is left of a refusal's list of problems when these are taken out: the order differs from time to time."""
    for problem in problems:
        assert problem in text, f"{problem!r} is not in {text!r}"
        text = text.replace(problem, "", 1)
    return text.replace(", ", "")


def runtime_patches(
    *, pod: Object | None = None, manager: str = "example.org/a", job: str = "node", **more: Any
) -> list[Object]:
    """runtimePatches for the pods of one of a runtime's jobs."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod or {}}}}}]
    return [{"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}, **more}]

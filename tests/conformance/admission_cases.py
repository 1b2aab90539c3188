"""Cases of admission: TrainJobs, and the responses of the API server to their dry runs, which create nothing."""

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
    """The parts of a response that a case compares.

    Attributes:
        code: HTTP status.
        reason: the reason of the Status object.
        message: its message, in which the times that the Trainer writes to patches are replaced by `now`.
    """

    code: int
    reason: str = ""
    message: str = ""

    @classmethod
    def from_response(cls, response: Response) -> ResponseSummary:
        if response.ok:
            return ACCEPTED
        return cls(response.code, response.reason, _TIMESTAMP.sub('"time":"now"', response.message))


ACCEPTED = ResponseSummary(201)


def denied(text: str) -> ResponseSummary:
    """Return the response of the validating webhook that rejects a TrainJob."""
    return ResponseSummary(403, "Forbidden", VALIDATOR + text)


def undecodable(text: str) -> ResponseSummary:
    """Return the defaulting webhook's response to a TrainJob that it cannot decode.

    The response has no reason.
    """
    return ResponseSummary(400, "", DEFAULTER + text)


def invalid(text: str, name: str = "job") -> ResponseSummary:
    """Return the response for a TrainJob that the schema or a CEL rule of the CRD rejects."""
    return ResponseSummary(422, "Invalid", f'TrainJob.trainer.kubeflow.org "{name}" is invalid: {text}')


def invalid_schema(problem: str) -> ResponseSummary:
    """Return the response for a schema violation after which the CEL rules are not evaluated."""
    return invalid(f"[{problem}{UNCHECKED}")


def bad_request(text: str) -> ResponseSummary:
    """Return the response for a body that the API server cannot decode as a TrainJob."""
    return ResponseSummary(400, "BadRequest", f'TrainJob in version "v1alpha1" cannot be handled as a TrainJob: {text}')


@dataclass(frozen=True)
class AdmissionCase:
    """A TrainJob and the expected response.

    Attributes:
        title: what the case is about.
        job: the TrainJob.
        expected: the expected response.
        since: first version of the Trainer with this response.
        before: first version of the Trainer without this response.
    """

    title: str
    job: Object
    expected: ResponseSummary
    since: tuple[int, int] = FIRST_VERSION
    before: tuple[int, int] = NO_VERSION


def case(
    title: str, expected: ResponseSummary, /, *, since: Any = FIRST_VERSION, before: Any = NO_VERSION, **spec: Any
) -> AdmissionCase:
    """Return the case of a TrainJob on torch-distributed with these spec fields.

    Fields that are None are left out.
    """
    job = train_job()
    job["spec"] = {name: value for name, value in {**job["spec"], **spec}.items() if value is not None}
    return AdmissionCase(title, job, expected, since, before)


def trainer_case(
    title: str, expected: ResponseSummary, /, *, since: Any = FIRST_VERSION, before: Any = NO_VERSION, **trainer: Any
) -> AdmissionCase:
    """Return the case of a TrainJob with these fields of `spec.trainer`."""
    return replace(case(title, expected, trainer=trainer), since=since, before=before)


def dry_run_cases(
    client: Client, namespace: str, trainer: tuple[int, int], cases: Iterable[AdmissionCase], **query: Any
) -> tuple[dict[str, ResponseSummary], dict[str, ResponseSummary]]:
    """Send the cases of this version as dry runs, and return responses and expectations.

    Both have the titles of the cases as keys.
    """
    known = [one for one in cases if one.since <= trainer < one.before]
    query = {"dryRun": "All", **query}
    path = path_of("TrainJob", namespace)
    found = {one.title: ResponseSummary.from_response(client.request("POST", path, one.job, **query)) for one in known}
    return found, {one.title: one.expected for one in known}


def remove_problems(text: str, problems: Iterable[str]) -> str:
    """Remove these problems, whose order varies, from a message that lists several problems."""
    for problem in problems:
        assert problem in text, f"{problem!r} is not in {text!r}"
        text = text.replace(problem, "", 1)
    return text.replace(", ", "")


def runtime_patches(
    *, pod: Object | None = None, manager: str = "example.org/a", job: str = "node", **more: Any
) -> list[Object]:
    """Return runtimePatches for the pods of one replicated job of a runtime."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod or {}}}}}]
    return [{"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}, **more}]

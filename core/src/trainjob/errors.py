"""The one error tree of the project: what went wrong, whether trying again can help, and what to do.

A caller needs to know only [TrainJobError][]. Each class below it says how a program ends that got the error, and
whether a workflow engine should retry the step:

| Error | Meaning | Exit code | Retry by the engine |
|---|---|---|---|
| [InvalidSpec][], [AdmissionRefused][] | the request is wrong; its author changes it | 2 | no |
| [ClusterUnreachable][], [InvalidResponse][], [ServerUnavailable][], [QuotaExceeded][] | no answer yet | 1 | yes |
| any other [ClusterError][], [OwnershipConflict][] | connection, permissions, a missing or foreign object | 1 | no |
| [NeverStarted][], [ImageUnavailable][] | what the pods need is missing, wrong or refused; the job was ended | 3 | no |
| any other [JobFailed][] | the TrainJob ran and failed, or is gone; carries the outcome | 3 | yes |
| [WaitTimeout][] | a limit on waiting was reached; the job may still run | 4 | yes |
| [ExportError][], [FetchError][] | a transfer failed; raised in the pod | 1 | - |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

# In front of the @ of a URL stand credentials: user:password, or a token alone.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@|(?<![^/\s@])[^/\s@:]+:[^/\s@]+@")

__all__ = [
    "AdmissionRefused",
    "ClusterError",
    "ClusterUnreachable",
    "CommandFailed",
    "Conflict",
    "DeadlineExceeded",
    "ExitCode",
    "Expired",
    "ExportError",
    "FetchError",
    "ImageUnavailable",
    "Interrupted",
    "InvalidResponse",
    "InvalidSpec",
    "JobDeleted",
    "JobFailed",
    "NeverStarted",
    "NoClusterConfigured",
    "NotFound",
    "OutOfMemory",
    "OwnershipConflict",
    "PermissionDenied",
    "Problem",
    "QuotaExceeded",
    "ServerUnavailable",
    "TrainJobError",
    "Unauthorized",
    "WaitTimeout",
]


class ExitCode(IntEnum):
    """Exit codes of the command `trainjob` and of the KFP launcher."""

    DONE = 0
    FAILED = 1
    """It could not be done: no connection, no permission, no such object, or an unexpected error."""
    INVALID_REQUEST = 2
    """The request is wrong: nothing was sent, or the cluster refused it."""
    JOB_FAILED = 3
    """A TrainJob ended without success."""
    STILL_RUNNING = 4
    """The wait ended; the TrainJob may still run."""
    INTERRUPTED = 130
    """Ctrl-C, as a shell counts it."""


class TrainJobError(Exception):
    """Base of every error this project raises on purpose.

    Attributes:
        retryable: whether the same request may succeed later without anybody changing anything.
        hint: what to do, as one sentence; empty when the message says it already.
        exit_code: exit code of a program that ends with this error.
        was_tried: whether the step was tried, so that the retries that its author has given it apply.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    was_tried: ClassVar[bool] = False
    retryable: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.hint}" if self.hint else self.message

    @property
    def permanent(self) -> bool:
        """Whether a workflow engine should skip the retries that the step has left."""
        return not (self.was_tried or self.retryable)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a request.

    Attributes:
        field: where, as a path such as `config.peft_config.lora_rank`.
        value: what was given, shortened; `***` where it could be a secret.
        allowed: what is allowed there and, where it helps, what to do.
    """

    field: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return without_credentials(f"{self.field}: {self.value} is not allowed; {self.allowed}")


def without_credentials(text: str) -> str:
    """A text for people, with `***` where a URL in it has a user, a password or a token."""
    return _CREDENTIALS.sub("***@", text)


class InvalidSpec(TrainJobError, ValueError):
    """The request breaks a rule that is known before anything is sent.

    It is a `ValueError` too, so that pydantic can report it from inside a validator.

    Attributes:
        problems: every rule that was broken, not only the first.
    """

    exit_code = ExitCode.INVALID_REQUEST

    def __init__(self, problems: Problem | Sequence[Problem], *, hint: str = "") -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems), hint=hint)


class ClusterError(TrainJobError):
    """The Kubernetes API could not be asked, or said no.

    Attributes:
        status: the HTTP status code, or None when there was no answer.
        reason: the `reason` of the Kubernetes Status object, such as `AlreadyExists`; may be empty.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None, reason: str = "") -> None:
        super().__init__(without_credentials(message), hint=hint)  # the server's URL may hold some
        self.status = status
        self.reason = reason


class NoClusterConfigured(ClusterError):
    """No usable kubeconfig and not inside a cluster."""


class ClusterUnreachable(ClusterError):
    """No answer: wrong address, connection refused or reset, DNS, TLS, time-out."""

    retryable = True


class InvalidResponse(ClusterError):
    """The API server answered with success, and the body is empty or lacks fields that every such answer has.

    After a request to create an object, the object may exist.
    """

    retryable = True


class ServerUnavailable(ClusterError):
    """The API server answers 429 or 5xx, or a webhook it must ask is down.

    Attributes:
        retry_after: seconds the server asked to wait, or None.
    """

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint, status=status, reason=reason)
        self.retry_after = retry_after


class Unauthorized(ClusterError):
    """401: the credentials are missing, wrong or expired."""


class PermissionDenied(ClusterError):
    """403 from RBAC: the credentials are good, a rule is missing."""


class AdmissionRefused(ClusterError):
    """400, 403 by a webhook, or 422: the server refuses the object itself."""

    exit_code = ExitCode.INVALID_REQUEST


class QuotaExceeded(ClusterError):
    """403 by a ResourceQuota: the namespace may have no more of these now."""

    retryable = True


class NotFound(ClusterError):
    """404."""


class Conflict(ClusterError):
    """409: the name exists, or a precondition such as the uid does not hold."""


class Expired(ClusterError):
    """410: the resourceVersion of a watch is too old; list again."""


class OwnershipConflict(TrainJobError):
    """A TrainJob of the wanted name exists and belongs to somebody else."""


class JobFailed(TrainJobError):
    """The TrainJob ended without success; one of the classes below where it is known whose fault it was.

    Attributes:
        outcome: the [trainjob.status.Outcome][] with step, rank, exit code, events and last log lines.
    """

    exit_code = ExitCode.JOB_FAILED
    was_tried = True

    def __init__(self, message: str, *, outcome: Any = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome


class CommandFailed(JobFailed):
    """The step's own command ended with an error; the same code on the same data is likely to fail again."""


class OutOfMemory(JobFailed):
    """A container of the step needed more memory than it may have."""


class DeadlineExceeded(JobFailed):
    """The TrainJob was active for longer than its deadline, and the cluster ended it."""


class Interrupted(JobFailed):
    """The pod was evicted, preempted, or lost with its node; nothing is wrong with the step itself."""

    retryable = True


class JobDeleted(JobFailed):
    """Somebody deleted the TrainJob while we waited for it; never success."""

    retryable = True


class NeverStarted(JobFailed):
    """What the step's pods need is missing, wrong or refused, and waiting for it is hopeless; the job was ended."""

    was_tried = False


class ImageUnavailable(NeverStarted):
    """The registry does not have the step's image, or does not give it to these pods."""


class WaitTimeout(TrainJobError, TimeoutError):
    """A limit on waiting was reached; what happened to the job is in the message."""

    exit_code = ExitCode.STILL_RUNNING
    was_tried = True  # the next try adopts the TrainJob


class ExportError(TrainJobError):
    """The trained model could not be found, made loadable, sent or registered."""


class FetchError(TrainJobError):
    """A dataset or a model could not be fetched."""

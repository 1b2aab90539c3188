"""Error classes of the project; every error is a [TrainJobError][].

An error says what went wrong, whether a retry can help, and what to do. A caller needs to know only [TrainJobError][].
For each subclass, this table has the exit code of a program that ends with the error. It also says whether a workflow
engine should retry the step:

| Error | Meaning | Exit code | Retry by the engine |
|---|---|---|---|
| [InvalidSpec][], [AdmissionRefused][] | the request is wrong; its author changes it | 2 | no |
| [ClusterUnreachable][], [InvalidResponse][], [ServerUnavailable][], [QuotaExceeded][] | no response yet | 1 | yes |
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

# The text before the @ of a URL is credentials: user:password, or a token alone.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@|(?<![^/\s@])[^/\s@:]+:[^/\s@]+@")

__all__ = [
    "INSTALLATION_FAILED",
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
    "InstallationFailed",
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


INSTALLATION_FAILED = "packages could not be installed"
"""Start of the message of an `InstallationFailed`, by which it is recognized in the log of a pod."""


class ExitCode(IntEnum):
    """Exit codes of the command `trainjob` and of the KFP launcher."""

    DONE = 0
    FAILED = 1
    """The command failed: no connection, no permission, no such object, or an unexpected error."""
    INVALID_REQUEST = 2
    """The request is wrong: nothing was sent, or the cluster refused it."""
    JOB_FAILED = 3
    """A TrainJob ended without success."""
    STILL_RUNNING = 4
    """The wait ended; the TrainJob may still run."""
    INTERRUPTED = 130
    """Ctrl-C, with the exit code that a shell uses for it."""


class TrainJobError(Exception):
    """Base class of every error that this project raises on purpose.

    Attributes:
        retryable: whether the same request may succeed later without any change by a person.
        hint: what to do, as one sentence; empty if the message says it already.
        exit_code: exit code of a program that ends with this error.
        was_tried: whether the step was tried, so that the retries that its author configured apply.
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
        """Whether a workflow engine should skip the remaining retries of the step."""
        return not (self.was_tried or self.retryable)


@dataclass(frozen=True)
class Problem:
    """One error in a request.

    Attributes:
        field: path of the field, such as `config.peft_config.lora_rank`.
        value: given value, shortened; `***` if it may be a secret.
        allowed: allowed values and, if useful, what to do.
    """

    field: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return redact_credentials(f"{self.field}: {self.value} is not allowed; {self.allowed}")


def redact_credentials(text: str) -> str:
    """Return a text with `***` in place of user, password or token in its URLs."""
    return _CREDENTIALS.sub("***@", text)


class InvalidSpec(TrainJobError, ValueError):
    """A request that breaks a rule known before anything is sent.

    It is a `ValueError`, too, so that pydantic can report it from inside a validator.

    Attributes:
        problems: every rule that was broken, not only the first.
    """

    exit_code = ExitCode.INVALID_REQUEST

    def __init__(self, problems: Problem | Sequence[Problem], *, hint: str = "") -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems), hint=hint)


class ClusterError(TrainJobError):
    """A request to the Kubernetes API that failed or was refused.

    Attributes:
        status: HTTP status code; None without a response.
        reason: `reason` of the Kubernetes Status object, such as `AlreadyExists`; may be empty.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None, reason: str = "") -> None:
        super().__init__(redact_credentials(message), hint=hint)  # the server's URL may have credentials
        self.status = status
        self.reason = reason


class NoClusterConfigured(ClusterError):
    """A connection that can't be opened: no usable kubeconfig or service account."""


class ClusterUnreachable(ClusterError):
    """A request without a response.

    Causes are a wrong address, a refused or reset connection, DNS, TLS, or a time-out.
    """

    retryable = True


class InvalidResponse(ClusterError):
    """A successful response with an empty body, or without fields that it must have.

    After a request to create an object, the object may exist.
    """

    retryable = True


class ServerUnavailable(ClusterError):
    """A response 429 or 5xx of the API server, or a required webhook that is down.

    Attributes:
        retry_after: seconds to wait, from the header `Retry-After`; None without it.
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
    """403 from RBAC: the credentials are valid, but a rule is missing."""


class AdmissionRefused(ClusterError):
    """400, 403 from a webhook, or 422: the server refuses the object itself."""

    exit_code = ExitCode.INVALID_REQUEST


class QuotaExceeded(ClusterError):
    """403 from a ResourceQuota: the namespace has reached its limit for these objects."""

    retryable = True


class NotFound(ClusterError):
    """404: the object or its kind does not exist."""


class Conflict(ClusterError):
    """409: the name exists, or a precondition such as the uid does not hold."""


class Expired(ClusterError):
    """410: the resourceVersion of a watch or list is too old; list again."""


class OwnershipConflict(TrainJobError):
    """A TrainJob with the requested name exists and belongs to another owner."""


class JobFailed(TrainJobError):
    """A TrainJob that ended without success.

    If the cause is known, the error is of one of the subclasses below.

    Attributes:
        outcome: the [trainjob.status.Outcome][] with step, rank, exit code, events and last log lines.
    """

    exit_code = ExitCode.JOB_FAILED
    was_tried = True

    def __init__(self, message: str, *, outcome: Any = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome


class CommandFailed(JobFailed):
    """The step's own command ended with an error.

    The same code on the same data is likely to fail again.
    """


class InstallationFailed(JobFailed):
    """The packages of a training could not be installed in its pod."""

    retryable = True


class OutOfMemory(JobFailed):
    """A container of the step needed more memory than its limit."""


class DeadlineExceeded(JobFailed):
    """The TrainJob was active for longer than its deadline, and the cluster ended it."""


class Interrupted(JobFailed):
    """The pod was evicted, preempted, or lost with its node.

    Nothing is wrong with the step itself.
    """

    retryable = True


class JobDeleted(JobFailed):
    """Somebody deleted the TrainJob during the wait, which never counts as success."""

    retryable = True


class NeverStarted(JobFailed):
    """A job that was ended because its pods could not start, and a longer wait would not help.

    An object that the step's pods need is missing, wrong or refused.
    """

    was_tried = False


class ImageUnavailable(NeverStarted):
    """The registry does not have the step's image, or refuses it to these pods."""


class WaitTimeout(TrainJobError, TimeoutError):
    """A limit on waiting was reached.

    The message says what happened to the job.
    """

    exit_code = ExitCode.STILL_RUNNING
    was_tried = True  # the next try adopts the TrainJob


class ExportError(TrainJobError):
    """The trained model could not be found, made loadable, sent or registered."""


class FetchError(TrainJobError):
    """A dataset or a model could not be fetched."""

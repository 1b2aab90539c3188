"""Error classes of the project; every error is a [TrainJobError][].

An error says what went wrong, whether a retry can help, and what to do. A caller needs to know only [TrainJobError][].
For each subclass, this table has the exit code of a program that ends with the error. It also says whether a workflow
engine should retry the step:

| Error | Meaning | Exit code | Retry by the engine |
|---|---|---|---|
| [InvalidSpec][], [AdmissionRefused][] | the request is wrong; its author changes it | 2 | no |
| [ClusterUnreachable][], [InvalidResponse][], [ServerUnavailable][], [QuotaExceeded][] | no response yet | 1 | yes |
| [OutOfThreads][] | this process can start no thread | 1 | yes |
| [Unauthorized][], [CredentialPluginFailed][] | credentials are replaced | 1 | yes |
| [PermissionDenied][] of a request that worked before | rules are replaced | 1 | yes |
| [WrongCluster][], [IncompatibleVersion][] | the process has another connection or version than the others | 1 | yes |
| any other [ClusterError][], [OwnershipConflict][] | connection, permissions, a missing or foreign object | 1 | no |
| [NeverStarted][], [ImageUnavailable][] | what the pods need is missing, wrong or refused; the job was ended | 3 | no |
| any other [JobFailed][] | the TrainJob ran and failed, or is gone; carries the outcome | 3 | yes |
| [WaitTimeout][] | a limit on waiting was reached; the job may still run | 4 | yes |
| [ExportError][], [FetchError][], [MergeError][] | a transfer or a merge failed; raised in the pod | 1 | - |
| [PromotionError][] | a model was not promoted; raised in the pod | 1 | - |
| [OutputInUse][] | another training writes to the output folder; raised in the pod | 1 | - |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar

from trainjob.credentials import redact_credentials

__all__ = [
    "DIVERGED",
    "HUNG",
    "INSTALLATION_FAILED",
    "NO_CREDENTIALS",
    "TOO_LITTLE_SPACE",
    "AdmissionRefused",
    "ClusterError",
    "ClusterUnreachable",
    "CommandFailed",
    "Conflict",
    "CredentialPluginFailed",
    "CredentialPluginRefused",
    "DeadlineExceeded",
    "Diverged",
    "ExitCode",
    "Expired",
    "ExportError",
    "FetchError",
    "Hung",
    "ImageUnavailable",
    "IncompatibleVersion",
    "InstallationFailed",
    "Interrupted",
    "InvalidResponse",
    "InvalidSpec",
    "JobDeleted",
    "JobFailed",
    "MergeError",
    "MetadataChanged",
    "NeverStarted",
    "NoClusterConfigured",
    "NotFound",
    "OutOfMemory",
    "OutOfThreads",
    "OutputInUse",
    "OwnershipConflict",
    "PermissionDenied",
    "Problem",
    "ProblemKind",
    "PromotionError",
    "QuotaExceeded",
    "ServerUnavailable",
    "StorageFull",
    "TrainJobError",
    "Unauthorized",
    "WaitTimeout",
    "WrongCluster",
]


DIVERGED = "the training diverged"
"""Start of the message of a `Diverged`, by which it is recognized in the log of a pod."""
INSTALLATION_FAILED = "packages could not be installed"
"""Start of the message of an `InstallationFailed`, by which it is recognized in the log of a pod."""
TOO_LITTLE_SPACE = "the workspace has too little space"
"""Start of the message of a `StorageFull` before a training, by which it is recognized in the log of a pod."""
HUNG = "the training hung"
"""Start of the message of a `Hung`, by which it is recognized in the log of a pod."""
NO_CREDENTIALS = "the pod has no credentials of the Secret"
"""Start of the message about a missing Secret, by which it is recognized in the log of a pod."""


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


class ProblemKind(Enum):
    """Kind of an error in a request, which decides its sentence."""

    INVALID = "invalid"
    """The field has a wrong value, or one of a wrong type."""
    MISSING = "missing"
    """The field is required and not given."""
    UNKNOWN = "unknown"
    """There is no such field."""


@dataclass(frozen=True)
class Problem:
    """One error in a request.

    Attributes:
        field: path of the field, such as `config.peft_config.lora_rank`.
        value: given value, shortened; `***` if it may be a secret.
        allowed: allowed values and, if useful, what to do; for an unknown field the whole sentence.
        kind: kind of the error.
    """

    field: str
    value: str
    allowed: str
    kind: ProblemKind = ProblemKind.INVALID

    def __str__(self) -> str:
        if self.kind is ProblemKind.UNKNOWN:
            text = f"{self.field}: {self.allowed}"
        elif self.kind is ProblemKind.MISSING:
            text = f"{self.field} is required" + (f": {self.allowed}" if self.allowed else "")
        else:
            text = f"{self.field} cannot be {self.value}: {self.allowed}"
        return redact_credentials(text)


class InvalidSpec(TrainJobError, ValueError):
    """A request that breaks a rule known before anything is sent.

    It is a `ValueError`, too, so that pydantic can report it from inside a validator.

    Cause: A field has a wrong value, there is no such field, a required field is missing, or two fields contradict each
    other.

    Remedy: Correct the fields that the message names. Nothing was sent.

    Attributes:
        problems: every rule that was broken, not only the first.
    """

    exit_code = ExitCode.INVALID_REQUEST

    def __init__(self, problems: Problem | Sequence[Problem], *, hint: str = "", place: str = "") -> None:
        """Create the error.

        Args:
            problems: the broken rules.
            hint: what to do, as one sentence.
            place: line of the message before the problems: what is wrong in which file and line; may be empty.
        """
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join([*filter(None, [place]), *map(str, self.problems)]), hint=hint)


class ClusterError(TrainJobError):
    """A request to the Kubernetes API that failed or was refused.

    Cause: The API server sent an error that no subclass describes, or another server responds.

    Remedy: Check that the connection names a Kubernetes API server, and that no proxy responds instead of it.

    Attributes:
        status: HTTP status code; None without a response.
        reason: `reason` of the Kubernetes Status object, such as `AlreadyExists`; may be empty.
        retry_after: seconds to wait before a retry, from the header `Retry-After`; None without it.
        worked_before: for a 401, whether the credentials worked on this connection until less than a minute ago; for a
            403, whether a request of the same verb and resource worked before. Such a refusal is probably temporary,
            because tokens and Roles are replaced now and then.
    """

    worked_before: bool = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(redact_credentials(message), hint=hint)  # the server's URL may have credentials
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NoClusterConfigured(ClusterError):
    """A connection that can't be opened: no usable kubeconfig or service account.

    Cause: No kubeconfig exists, a file or context of it is missing, or its URL begins with `http://` although the
    server uses TLS.

    Remedy: Set `KUBECONFIG`, the Airflow connection or `--kubeconfig` to a usable kubeconfig. In a pod, mount the
    service account's token.
    """


class CredentialPluginRefused(NoClusterConfigured):
    """A kubeconfig with a credential plugin, in a process that does not run plugins.

    Cause: The page TrainJobs reads a connection whose kubeconfig has `exec`, and the plugin would run in Airflow's API
    server.

    Remedy: Give the page a connection with a token or a client certificate, or set `[trainjob]
    page_credential_plugins = True`.
    """


class ClusterUnreachable(ClusterError):
    """A request without a response.

    Cause: The address is wrong, the connection was refused or reset, or DNS, TLS or a time-out failed.

    Remedy: Check that the API server runs, that the connection names it, and that `NO_PROXY` contains it if
    `HTTPS_PROXY` is set.
    """

    retryable = True


class InvalidResponse(ClusterError):
    """A successful response with an empty body, or without fields that it must have.

    After a request to create an object, the object may exist.

    Cause: A proxy or gateway responded instead of the API server, or the response was truncated.

    Remedy: Try again. If the error persists, connect without the proxy.
    """

    retryable = True


class ServerUnavailable(ClusterError):
    """A response 429 or 5xx of the API server, or a required webhook that is down.

    Cause: The API server is overloaded or restarts, or a webhook that it requires does not respond.

    Remedy: Wait. If the message names a webhook, have a cluster administrator restore it.
    """

    retryable = True


class OutOfThreads(ClusterError):
    """A thread that the operating system refuses to start.

    A request or a watch can't begin. TrainJobs are not affected; a retry of the step adopts its TrainJob.

    Cause: The process has reached the limit of its pod (`podPidsLimit`), of its user (`ulimit -u`) or of its memory.

    Remedy: Try again. If the error persists, raise the limit, or wait for fewer TrainJobs in one process.
    """

    retryable = True


class Unauthorized(ClusterError):
    """401, or 403 for `system:anonymous`: the credentials are missing, wrong or expired.

    The client loads the credentials again. If they worked before, it retries for 60 s, because tokens are rotated.

    Cause: The token or certificate of the connection is missing, wrong or expired.

    Remedy: Log in again, or renew the token or certificate of the connection.
    """

    retryable = True


class CredentialPluginFailed(Unauthorized):
    """A credential plugin (`exec`) of the kubeconfig that gave no credentials.

    Nothing was sent. The plugin is run again for 60 s, as a request with a response 5xx is.

    Cause: Its login has expired, its token service does not respond, or it took longer than a minute.

    Remedy: Log in again. On a worker, where nobody can log in, give the connection a token or a service account.
    """


class PermissionDenied(ClusterError):
    """403 from RBAC: the credentials are valid, but a rule is missing.

    If a request of the same verb and resource worked before, the client retries for 60 s, because Roles are replaced.
    The error is then retryable.

    Cause: The account has no Role with this permission in the namespace.

    Remedy: Run `trainjob check`, which lists the missing permissions, and have an administrator apply the Roles in
    `manifests/`.
    """


class AdmissionRefused(ClusterError):
    """400, 403 from a webhook, or 422: the server refuses the object itself.

    Cause: A field is invalid for the installed Trainer, or a webhook or policy of the cluster refuses the object.

    Remedy: Correct what the message names, or have an administrator change the policy.
    """

    exit_code = ExitCode.INVALID_REQUEST


class MetadataChanged(AdmissionRefused):
    """A TrainJob whose labels or annotations the cluster changed while it was created.

    The TrainJob was deleted, unless the message says that this failed.

    Cause: A mutating admission policy or webhook removes or overwrites keys that begin with `trainjob.dev/`.

    Remedy: Have an administrator exclude these keys, or the TrainJobs of the namespace, from the policy.
    """


class QuotaExceeded(ClusterError):
    """403 from a ResourceQuota: the namespace has reached its limit for these objects.

    Cause: A ResourceQuota of the namespace is used up.

    Remedy: Wait until other jobs end, or have an administrator raise the ResourceQuota.
    """

    retryable = True


class NotFound(ClusterError):
    """404: the object or its kind does not exist.

    Cause: The name or the namespace is wrong, the object was deleted, or Kubeflow Trainer is not installed.

    Remedy: Check the name and the namespace. `trainjob check` reports whether the Trainer and its runtimes are
    installed.
    """


class Conflict(ClusterError):
    """409: the name exists, or a precondition such as the uid does not hold.

    Cause: Another client changed or created the object at the same time, or the TrainJob cannot be suspended.

    Remedy: Try again. For a TrainJob in a Kueue queue or on a stock runtime with a built-in trainer, cancel it instead
    of suspending it.
    """


class Expired(ClusterError):
    """410: the resourceVersion of a watch or list is too old; list again.

    Cause: The API server has compacted its history since the list or watch began.

    Remedy: None. This project lists again by itself; a program of your own has to do the same.
    """


class WrongCluster(ClusterError):
    """A TrainJob that this process cannot find, because it reaches another cluster.

    The process decides nothing about the TrainJob: it neither counts as deleted, nor is it deleted or replaced.

    Cause: The parts of a workflow engine have different connections. For example, Airflow's connection is in the
    environment of the workers only, and the triggerer uses its own kubeconfig.

    Remedy: Give all parts the same connection, and start the step again; it adopts the TrainJob.
    """

    retryable = True


class IncompatibleVersion(TrainJobError):
    """Values of another version of this project that this version cannot read.

    The TrainJob continues.

    Cause: The parts of a workflow engine have different versions, for example during an upgrade.

    Remedy: Install the same version everywhere, and start the step again; it adopts the TrainJob.
    """

    retryable = True

    @classmethod
    def of_values(cls, kind: str, error: Exception) -> IncompatibleVersion:
        """Return the error for serialized values of a kind that could not be read.

        Args:
            kind: class of the values, such as `Outcome`.
            error: why they could not be read.
        """
        return cls(
            f"a serialized {kind} can't be read: {type(error).__name__}: {error}",
            hint="install the same version of this project everywhere, and start the step again",
        )


class OwnershipConflict(TrainJobError):
    """A TrainJob with the requested name exists and belongs to another owner.

    Cause: The existing TrainJob has the name that this step uses, but another run key in its annotation. For example, a
    user copied it.

    Remedy: Delete the other TrainJob, or create it under another name.
    """


class JobFailed(TrainJobError):
    """A TrainJob that ended without success.

    If the cause is known, the error is of one of the subclasses below.

    Cause: The TrainJob ended for a reason that is not known, for example because its pods were deleted before they
    could be read.

    Remedy: Read the events in the message, and run `trainjob describe` on the TrainJob.

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

    Cause: The command returned an exit code other than 0, or restarted more often than `max_restarts` allows.

    Remedy: Read the last log lines in the message, and correct the program, its arguments or its data.
    """


class InstallationFailed(JobFailed):
    """The packages of a training could not be installed in its pod.

    Cause: The pods cannot reach the package index, or the index does not have the packages.

    Remedy: Give an image that contains the packages, an index that the pods reach (`pip_index_url`), or wheels
    (`wheels_path`).
    """

    retryable = True


class Diverged(JobFailed):
    """Loss and gradients of a training are not finite any more, or the loss is too high.

    The watchdog says how high it may be (`loss_factor`). The training's weights are useless, so no model is saved.

    Cause: The learning rate is too high, the gradients are not limited, or rows of the dataset are damaged.

    Remedy: Lower the `learning_rate`, set `max_grad_norm`, or correct the rows. The message has the last step with a
    finite loss.
    """


class Hung(JobFailed):
    """A training made no step for longer than its watchdog allows, which has ended it.

    The message has the rank that hung and its place in the code. The log has the stacks.

    Cause: A worker of the data loader waits for a lock or a file. A rank may also never join the others in an
    operation. Its process may be stopped, or the network between nodes or GPUs may have failed.

    Remedy: Correct the code at the named place, or avoid the node. With `action="restart"` of the watchdog, another
    attempt continues from the last checkpoint.
    """


class OutOfMemory(JobFailed):
    """A container of the step needed more memory than its limit.

    Cause: The container exceeded its memory limit (`OOMKilled`), or torchrun reports that SIGKILL ended one of its
    processes. An error of CUDA is a `CommandFailed`.

    Remedy: Give the step more memory (`resources_per_node`), or use smaller batches or a smaller model.
    """


class StorageFull(JobFailed):
    """A disk that the step writes to is full.

    A retry alone fails again, because the files are still there.

    Cause: The volume of the workspace or the disk of the node is full, or a quota of the volume is used up. A volume
    with I/O errors can be the cause, too, because `torch.save` (torch 2.13) and `numpy.save` (numpy 2.4) report no
    reason.

    Remedy: Delete files that are no longer needed in the workspace, or use a larger PersistentVolumeClaim. If the file
    in the message is not in the workspace, the disk of the node is full. Give the step more of the resource
    `ephemeral-storage`, or move caches into the workspace, for example with `HF_HOME`. The last complete checkpoint is
    kept, so a training continues from it.
    """


class DeadlineExceeded(JobFailed):
    """The TrainJob was active for longer than its deadline, and the cluster ended it.

    Cause: The `deadline` of the step, or `activeDeadlineSeconds` of the runtime, is too short for the work.

    Remedy: Raise the deadline, or find out why the step is slow.
    """


class Interrupted(JobFailed):
    """The pod was evicted, preempted, or lost with its node.

    Nothing is wrong with the step itself.

    Cause: A node was drained, failed or ran out of resources, or the scheduler preempted the pod.

    Remedy: None. The step starts another attempt, up to `interruption_retries` times. If it happens often, raise
    that number.
    """

    retryable = True


class JobDeleted(JobFailed):
    """Somebody deleted the TrainJob during the wait, which never counts as success.

    Cause: A user, a sweep or a garbage collector deleted the TrainJob.

    Remedy: Find out who deleted it, for example in the audit log of the API server. A retry starts a new attempt.
    """

    retryable = True


class NeverStarted(JobFailed):
    """A job that was ended because its pods could not start, and a longer wait would not help.

    An object that the step's pods need is missing, wrong or refused.

    Cause: A Secret, a key of it, a PersistentVolumeClaim, a queue or a service account is missing. Or the command is
    not in the image, or a policy refuses the pods.

    Remedy: Create or correct what the message names. `trainjob.status.Category` lists the reasons.
    """

    was_tried = False


class ImageUnavailable(NeverStarted):
    """The registry does not have the step's image, or refuses it to these pods.

    Cause: The name or the tag is wrong, or the pods have no credentials for the registry.

    Remedy: Correct the image, or give the pods an image pull secret (`Placement.image_pull_secrets`).
    """


class WaitTimeout(TrainJobError, TimeoutError):
    """A limit on waiting was reached.

    The message says what happened to the job.

    Cause: The TrainJob was longer in the queue, in its start or in total than the limit allows.

    Remedy: Read the reason in the message. Raise the limit, or remove what the TrainJob waits for.
    """

    exit_code = ExitCode.STILL_RUNNING
    was_tried = True  # the next try adopts the TrainJob


class ExportError(TrainJobError):
    """The trained model could not be found, made loadable, sent or registered.

    Cause: There is no complete checkpoint, the destination refuses the credentials, or the destination has other
    files. The program in the pod raises the error; a caller gets a `CommandFailed` with its message.

    Remedy: Do what the message says. The export may be repeated at any time.
    """


class PromotionError(TrainJobError):
    """A model was not promoted, or a promotion could not be undone.

    Cause: The service does not exist, cannot serve the model, or does not answer the smoke request. Another promotion
    of it is not complete, or a permission is missing. The program in the pod raises the error; a caller gets a
    `CommandFailed` with its message.

    Remedy: Do what the message says. The model before is served again, unless the message says something else.
    """


class FetchError(TrainJobError):
    """A dataset, a model or the copy of a checkpoint could not be fetched.

    Cause: The address is wrong, or the credentials or the license do not allow the download. The program in the
    pod raises the error; a caller gets a `CommandFailed` with its message.

    Remedy: Check the address, the Secret and, for a gated model, that its license was accepted. The step may be
    repeated at any time.
    """


class MergeError(TrainJobError):
    """The adapter of a LoRA training could not be merged into its base model.

    The training is complete, and its adapter is on disk.

    Cause: The merged model computes other values than base model and adapter, or there was not enough memory. The
    program in the pod raises the error; a caller gets a `CommandFailed` with its message.

    Remedy: Run the step again, which only merges, or export the adapter alone with `adapter="keep"`.
    """


class OutputInUse(TrainJobError):
    """Another training writes to the output folder of this one.

    This training has not begun. The other one continues.

    Cause: Two trainings have the same `output_path` and run at the same time. The program in the pod raises the error;
    a caller gets a `CommandFailed` with its message.

    Remedy: Give each training its own `output_path`, or start it after the one that the message names has ended.
    """

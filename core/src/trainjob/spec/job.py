"""Request for one TrainJob with any trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.builtin_runtimes import get_builtin_example, is_stock_builtin
from trainjob.spec.durations import Duration
from trainjob.spec.framework import get_framework
from trainjob.spec.initializers import Initializer
from trainjob.spec.metadata import Annotations, Labels
from trainjob.spec.model_check import ModelCheck
from trainjob.spec.resources import Placement, Queue, QueueField, Runtime, RuntimeField
from trainjob.spec.tracking import Tracking, needs_workspace
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainerContainer, Trainer
from trainjob.spec.volumes import Volumes, WorkspaceField, check_workspace_is_free

STOCK_RUNTIME = "torch-distributed"
# A TrainJob's name may have 33 characters, because JobSet names pods NAME-dataset-initializer-0-0-abcde, and they may
# have 63 (JobSet 0.12 webhook). A hash that makes the name unique takes 9 of the 33.
MAX_NAME_LENGTH = 24
# The Trainer counts nanoseconds in 64 bits. A longer deadline overflows and is over at once (seen on Trainer 2.3.0).
_LONGEST_DEADLINE = timedelta(days=292 * 365)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _validate_name(name: Any) -> Any:
    if isinstance(name, str) and (len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name)):
        rule = f"at most {MAX_NAME_LENGTH} characters: lower case letters, digits and -, beginning with a letter"
        raise invalid_field(
            "", name, f"{rule}; a hash is appended, and JobSet needs the rest of a pod name's 63 characters"
        )
    return name


def _validate_deadline(deadline: timedelta) -> timedelta:
    if deadline < timedelta(seconds=1):
        raise invalid_field("", f"{deadline.total_seconds():g} s", "it must be at least one second")
    if deadline > _LONGEST_DEADLINE:
        raise invalid_field("", str(deadline), f"it must be at most {_LONGEST_DEADLINE.days} days")
    return deadline


def _validate_ttl(ttl: timedelta) -> timedelta:
    if ttl < timedelta(0):
        raise invalid_field("", f"{ttl.total_seconds():g} s", "it must not be negative")
    return ttl


Program = Literal["packed", "image"]
"""Place of the code of a step's program: packed into the command of its pods, or contained in their image."""
JobName = Annotated[str, BeforeValidator(_validate_name)]
Deadline = Annotated[Duration, AfterValidator(_validate_deadline)]
TimeToLive = Annotated[Duration, AfterValidator(_validate_ttl)]
ManagedBy = Literal["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"]
"""Controller that acts on a TrainJob (Trainer 2.3 pkg/apis/trainer/v1alpha1/trainjob_types.go)."""
EndAction = Literal["delete", "suspend", "keep"]
"""Action on a TrainJob when its wait ends before the TrainJob has finished."""
END_POLICY_FIELDS = ("ttl_after_success", "ttl_after_failure", "on_kill", "on_failure")
"""Fields about the end of a TrainJob, which do not count for the hash of its request."""


def check_end_actions(on_kill: EndAction, on_failure: EndAction, queue: Queue | None, runtime: Runtime | None) -> None:
    """Refuse the action `suspend` for a TrainJob that cannot be suspended.

    Kueue reverts the suspension of a TrainJob in a queue within 0.2 s (Kueue 0.17). [is_stock_builtin][] explains the
    other reason.

    Args:
        on_kill: action when the caller is stopped.
        on_failure: action when the TrainJob is ended as failed.
        queue: its Kueue queue, if any.
        runtime: its runtime; None skips the check of the runtime.

    Raises:
        InvalidSpec: the TrainJob cannot be suspended; the error names the field.
    """
    field = "on_kill" if on_kill == "suspend" else "on_failure"
    if "suspend" not in (on_kill, on_failure):
        return
    why = f"Kueue would resume a TrainJob of the queue {queue.name}" if queue else ""
    if runtime and is_stock_builtin(runtime.name):
        why = f"a TrainJob on the stock runtime {runtime.name} can't be suspended"
    if why:
        raise invalid_field(field, "suspend", f"{why}: allowed are 'delete' and 'keep'")


def check_queue(queue: Queue | None, runtime: Runtime) -> None:
    """Refuse a queue for a runtime on which a queued TrainJob would never start.

    Kueue first suspends every TrainJob in a queue. The JobSet of a stock runtime with a built-in trainer cannot be
    changed after its creation, so Kueue cannot resume it (Trainer 2.3.0, JobSet 0.12.0, Kueue 0.17.0).

    Raises:
        InvalidSpec: the runtime is such a stock runtime; the error names the field.
    """
    if queue and is_stock_builtin(runtime.name, runtime.kind):
        why = (
            f"Kueue can't start a TrainJob on the stock runtime {runtime.name}, so it would wait forever; "
            "use a workspace"
        )
        raise invalid_field("queue", queue.name, why)


STEP_ALIASES = {
    **dict.fromkeys(("deadline_seconds", "timeout", "active_deadline_seconds", "execution_timeout"), "deadline"),
    **dict.fromkeys(("queue_name", "local_queue"), "queue"),
    "on_kill_action": "on_kill",
    "on_failure_action": "on_failure",
    **dict.fromkeys(("ttl", "ttl_seconds_after_finished"), "ttl_after_success"),
    **dict.fromkeys(("service_account", "serviceAccountName"), "placement.service_account_name"),
    **dict.fromkeys(("hf_token", "token", "secret_name"), "secret"),
}
"""Fields of every step by other names: those of other surfaces, of Kubernetes and of Airflow."""


class TrainJob(Spec):
    """One TrainJob as a workflow step requests it.

    Attributes:
        name: start of the TrainJob's name; by default the task's name.
        trainer: the trainer to run.
        runtime: training runtime; by default the stock `torch-distributed`.
        initializer: initializer Jobs of the same TrainJob, on runtimes that have them.
        workspace: a claim, or a folder of the node, that is mounted at `/workspace`.
        volumes: further volumes, mounted in every pod.
        tracking: experiment tracker that gets the parameters, and the metrics in the training's log. The image must
            contain Python, and the trainer must have a command.
        program: where the code that sends them comes from, and that of `model_check`; see `BaseStep`.
        model_check: folders that must have no model of another workflow run. The image must contain Python, and the
            trainer must have a command.
        placement: nodes, service account and image pull secrets of the pods.
        queue: Kueue queue in which the TrainJob waits for quota.
        managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
            `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3, because
            an older one also runs it on this cluster.
        deadline: limit on the active time, which excludes the time in the queue; whole seconds, at least one.
        max_restarts: how often a failing container may be restarted in place before the TrainJob is ended; None leaves
            it to the runtime.
        ttl_after_success: time for which the TrainJob is retained after it is complete, until a sweep deletes it; None
            means the sweep's `finished_for`. No controller in the cluster acts on it; see `trainjob.retention.sweep`.
        ttl_after_failure: the same time after it has failed.
        on_kill: action on the TrainJob when its caller is stopped: `delete`, `suspend` or `keep`. `suspend` deletes its
            pods; a later submission of the same request resumes it.
        on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
            `delete`, `suspend` or `keep`. `suspend` deletes its pods and retains its claims. `keep` retains its pods
            until the next try. A TrainJob that the cluster itself ends is always retained.
        labels: labels of the TrainJob and of its pods. Kueue's own labels are not added to the pods.
        annotations: annotations of the TrainJob and of its pods.
    """

    field_aliases: ClassVar[Mapping[str, str]] = STEP_ALIASES

    name: JobName | None = None
    trainer: Trainer = Field(default_factory=CustomTrainerContainer)
    runtime: RuntimeField = Field(default_factory=lambda: Runtime(name=STOCK_RUNTIME))
    initializer: Initializer | None = None
    workspace: WorkspaceField | None = None
    volumes: Volumes = ()
    tracking: Tracking | None = None
    program: Program = "packed"
    model_check: ModelCheck | None = None
    placement: Placement | None = None
    queue: QueueField | None = None
    managed_by: ManagedBy | None = None
    deadline: Deadline | None = None
    max_restarts: int | None = Field(default=0, ge=0)
    ttl_after_success: TimeToLive | None = None
    ttl_after_failure: TimeToLive | None = None
    on_kill: EndAction = "delete"
    on_failure: EndAction = "delete"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)

    @model_validator(mode="after")
    def _validate_combination(self) -> Self:
        if self.initializer and self.runtime.name == STOCK_RUNTIME:
            raise invalid_field(
                "initializer",
                self.initializer,
                f"the runtime {STOCK_RUNTIME} has no initializer Jobs; run InitializeDataset and InitializeModel as "
                "separate steps with a workspace, or name a runtime with initializers, such as "
                f"{get_builtin_example()}",
            )
        if isinstance(self.trainer, BuiltinTrainer) and not self.runtime.builtin_model:
            raise invalid_field(
                "runtime",
                self.runtime.name,
                "a BuiltinTrainer needs a runtime with a built-in trainer, named WORD-MODEL-SIZE, such as "
                f"{get_builtin_example()}",
            )
        initialized = bool(self.initializer or self.runtime.builtin_model)
        if self.workspace and initialized:
            # Its mount would replace the mount at /workspace that initializers fill. JobSet 0.12 then refuses to
            # create the Job, and the TrainJob hangs with only an event as a sign.
            raise invalid_field(
                "workspace",
                self.workspace.location,
                f"initializers and training on {self.runtime.name} share their own volume at /workspace; for your "
                f"own claim run InitializeDataset, InitializeModel and FineTune(workspace=...) on {STOCK_RUNTIME}",
            )
        self._check_tracking()
        self._check_model_check()
        check_end_actions(self.on_kill, self.on_failure, self.queue, self.runtime)
        check_queue(self.queue, self.runtime)
        shared = f"the volume that initializers and training on {self.runtime.name} share"
        taken = "the workspace" if self.workspace else shared if initialized else ""
        check_workspace_is_free(self.volumes, taken_by=taken)
        if isinstance(self.trainer, BuiltinTrainer):
            config, model = self.trainer.config, self.runtime.builtin_model
            get_framework(config).check_builtin(config, model, "trainer.config")
        return self

    def _check_model_check(self) -> None:
        if self.model_check is None:
            return
        if isinstance(self.trainer, BuiltinTrainer):
            raise invalid_field("model_check", self.model_check, "a BuiltinTrainer has its own claim: leave it out")
        if isinstance(self.trainer, CustomTrainerContainer) and not self.trainer.command:
            raise invalid_field("trainer.command", None, "give the command to start, because model_check needs it")
        if self.workspace is None:
            raise invalid_field("workspace", None, "give the workspace with the folders of model_check")

    def _check_tracking(self) -> None:
        if self.tracking is None:
            return
        if isinstance(self.trainer, BuiltinTrainer):
            rule = (
                "a BuiltinTrainer can't be tracked, because the runtime's own program runs: use FineTune(workspace=...)"
            )
            raise invalid_field("tracking", self.tracking, rule)
        if isinstance(self.trainer, CustomTrainerContainer) and not self.trainer.command:
            raise invalid_field("trainer.command", None, "give the command to start, because tracking needs it")
        if needs_workspace(self.tracking) and self.workspace is None:
            raise invalid_field("workspace", None, "give a workspace, because the tracker writes its files there")

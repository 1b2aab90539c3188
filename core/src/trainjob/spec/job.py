"""The general request: one TrainJob, whatever it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, refuse
from trainjob.spec.framework import framework_of
from trainjob.spec.initializers import Initializer
from trainjob.spec.resources import Placement, Queue, QueueField, Runtime, RuntimeField
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainerContainer, Trainer
from trainjob.spec.volumes import Volumes, WorkspaceField, check_workspace_is_free

STOCK_RUNTIME = "torch-distributed"
# A TrainJob's name may have 33 characters, as JobSet names pods NAME-dataset-initializer-0-0-abcde and they may have 63
# (JobSet 0.12 webhook); 9 of them are for the hash that makes it unique.
LONGEST_NAME = 24
# The Trainer counts in nanoseconds in 64 bits: a longer one overflows and has passed at once (seen on Trainer 2.3.0).
_LONGEST_DEADLINE = timedelta(days=292 * 365)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _checked_name(name: Any) -> Any:
    if isinstance(name, str) and (len(name) > LONGEST_NAME or not _NAME.fullmatch(name)):
        rule = f"at most {LONGEST_NAME} characters: lower case letters, digits and -, beginning with a letter"
        raise refuse("", name, f"{rule}; a hash is appended, and JobSet needs the rest of a pod name's 63 characters")
    return name


def _checked_deadline(deadline: timedelta) -> timedelta:
    if deadline < timedelta(seconds=1):
        raise refuse("", f"{deadline.total_seconds():g} s", "it must be at least one second")
    if deadline > _LONGEST_DEADLINE:
        raise refuse("", str(deadline), f"it must be at most {_LONGEST_DEADLINE.days} days")
    return deadline


def _checked_ttl(ttl: timedelta) -> timedelta:
    if ttl < timedelta(0):
        raise refuse("", f"{ttl.total_seconds():g} s", "it must not be negative")
    return ttl


JobName = Annotated[str, BeforeValidator(_checked_name)]
Deadline = Annotated[timedelta, AfterValidator(_checked_deadline)]
TimeToLive = Annotated[timedelta, AfterValidator(_checked_ttl)]
ManagedBy = Literal["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"]
"""Who acts on a TrainJob (Trainer 2.3 pkg/apis/trainer/v1alpha1/trainjob_types.go)."""
EndAction = Literal["delete", "suspend", "keep"]
"""What becomes of a TrainJob when nobody waits for it any more."""
ENDING = ("ttl_after_success", "ttl_after_failure", "on_kill", "on_failure")
"""The fields that say what is to become of a TrainJob afterwards; they are no part of what is asked for."""


def check_end_actions(on_kill: EndAction, on_failure: EndAction, queue: Queue | None, runtime: Runtime | None) -> None:
    """Refuse to suspend what can't be suspended.

    Kueue undoes the flag of a TrainJob in a queue within 0.2 s (Kueue 0.17), and the JobSet of a stock torchtune
    runtime can't be changed once it exists (Trainer 2.3.0 with JobSet 0.12.0).

    Raises:
        InvalidSpec: naming the field.
    """
    field = "on_kill" if on_kill == "suspend" else "on_failure"
    if "suspend" not in (on_kill, on_failure):
        return
    why = f"the queue {queue.name} decides when it runs, and would undo that" if queue else ""
    if runtime and runtime.name.startswith("torchtune-"):
        why = f"a TrainJob on the stock runtime {runtime.name} can't be suspended"
    if why:
        raise refuse(field, "suspend", f"{why}: allowed are 'delete' and 'keep'")


def check_queue(queue: Queue | None, runtime: Runtime) -> None:
    """Refuse a queue for what would never start in it.

    Kueue has every TrainJob in a queue suspended at first, and the JobSet of a stock torchtune runtime can't be changed
    once it exists (seen on Trainer 2.3.0 with JobSet 0.12.0 and Kueue 0.17.0).

    Raises:
        InvalidSpec: naming the field.
    """
    if queue and runtime.name.startswith("torchtune-") and runtime.kind == "ClusterTrainingRuntime":
        why = f"not on the stock runtime {runtime.name}: it would wait for ever; use a workspace"
        raise refuse("queue", queue.name, why)


class TrainJob(Spec):
    """One TrainJob as a workflow step asks for it.

    Attributes:
        name: begins the TrainJob's name; by default the task's.
        trainer: what runs.
        runtime: on which training runtime; by default the stock `torch-distributed`.
        initializer: initializer jobs of the same TrainJob, on runtimes that have them.
        workspace: a claim, or a folder of the node, to mount at `/workspace`.
        volumes: what else to mount, in every pod.
        placement: where the pods may run, and as whom.
        queue: a Kueue queue to wait in.
        managed_by: who acts on it: by default this cluster's Trainer; `kueue.x-k8s.io/multikueue` leaves it to Kueue's
            MultiKueue, which runs it on a worker cluster. That needs Trainer 2.3: an older one runs it here as well.
        deadline: how long the job may be active, time in the queue left out; whole seconds, at least one.
        max_restarts: how often a failing container may be restarted in place before the job is ended; None leaves it
            to the runtime.
        ttl_after_success: how long it stays when it is complete, until a sweep deletes it; None leaves that to the
            sweep. Nothing in the cluster acts on it; see `trainjob.retention.sweep`.
        ttl_after_failure: the same when it has failed.
        on_kill: what becomes of it when who asked for it is told to end: `delete`, `suspend` (its pods go; whoever
            asks for the same again lets it go on) or `keep`.
        on_failure: what becomes of it when it is ended for its restarts, or because it can't start: `delete`, `suspend`
            (its pods go, its claims stay) or `keep` (its pods stay, until the next try). One that the cluster itself
            ends always stays.
        labels: labels of the TrainJob.
        annotations: annotations of the TrainJob.
    """

    name: JobName | None = None
    trainer: Trainer = Field(default_factory=CustomTrainerContainer)
    runtime: RuntimeField = Field(default_factory=lambda: Runtime(name=STOCK_RUNTIME))
    initializer: Initializer | None = None
    workspace: WorkspaceField | None = None
    volumes: Volumes = ()
    placement: Placement | None = None
    queue: QueueField | None = None
    managed_by: ManagedBy | None = None
    deadline: Deadline | None = None
    max_restarts: int | None = Field(default=0, ge=0)
    ttl_after_success: TimeToLive | None = None
    ttl_after_failure: TimeToLive | None = None
    on_kill: EndAction = "delete"
    on_failure: EndAction = "delete"
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.initializer and self.runtime.name == STOCK_RUNTIME:
            raise refuse(
                "initializer",
                self.initializer,
                f"the runtime {STOCK_RUNTIME} has no initializer jobs; run InitializeDataset and InitializeModel as "
                "steps of their own over a workspace, or name a runtime with them, such as torchtune-llama3.2-1b",
            )
        if isinstance(self.trainer, BuiltinTrainer) and not self.runtime.builtin_model:
            raise refuse(
                "runtime",
                self.runtime.name,
                "a BuiltinTrainer needs a TorchTune runtime, called WORD-MODEL-SIZE, such as torchtune-llama3.2-1b",
            )
        initialized = bool(self.initializer or self.runtime.builtin_model)
        if self.workspace and initialized:
            # Its mount would take the place of the one at /workspace that initializers fill; JobSet 0.12 then refuses
            # to make the job, and the TrainJob hangs with nothing but an event.
            raise refuse(
                "workspace",
                self.workspace.place,
                f"initializers and training on {self.runtime.name} share a volume of their own at /workspace; for your "
                f"own claim run InitializeDataset, InitializeModel and FineTune(workspace=...) on {STOCK_RUNTIME}",
            )
        check_end_actions(self.on_kill, self.on_failure, self.queue, self.runtime)
        check_queue(self.queue, self.runtime)
        shared = f"the volume that initializers and training on {self.runtime.name} share"
        taken = "the workspace" if self.workspace else shared if initialized else ""
        check_workspace_is_free(self.volumes, taken_by=taken)
        if isinstance(self.trainer, BuiltinTrainer):
            config, model = self.trainer.config, self.runtime.builtin_model
            framework_of(config).check_builtin(config, model, "trainer.config")
        return self

"""The general request: one TrainJob, whatever it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, refuse
from trainjob.spec.initializers import Initializer
from trainjob.spec.recipes import check_recipe, model_of_runtime
from trainjob.spec.resources import Placement, QueueField, Runtime, RuntimeField, WorkspaceField
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainerContainer, Trainer

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


JobName = Annotated[str, BeforeValidator(_checked_name)]
Deadline = Annotated[timedelta, AfterValidator(_checked_deadline)]


class TrainJob(Spec):
    """One TrainJob as a workflow step asks for it.

    Attributes:
        name: begins the TrainJob's name; by default the task's.
        trainer: what runs.
        runtime: on which training runtime; by default the stock `torch-distributed`.
        initializer: initializer jobs of the same TrainJob, on runtimes that have them.
        workspace: a claim to mount at `/workspace`.
        placement: where the pods may run, and as whom.
        queue: a Kueue queue to wait in.
        deadline: how long the job may be active, time in the queue left out; whole seconds, at least one.
        max_restarts: how often a failing container may be restarted in place before the job is ended; None leaves it
            to the runtime.
        labels: labels of the TrainJob.
        annotations: annotations of the TrainJob.
    """

    name: JobName | None = None
    trainer: Trainer = Field(default_factory=CustomTrainerContainer)
    runtime: RuntimeField = Field(default_factory=lambda: Runtime(name=STOCK_RUNTIME))
    initializer: Initializer | None = None
    workspace: WorkspaceField | None = None
    placement: Placement | None = None
    queue: QueueField | None = None
    deadline: Deadline | None = None
    max_restarts: int | None = Field(default=0, ge=0)
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
        if isinstance(self.trainer, BuiltinTrainer) and not model_of_runtime(self.runtime.name):
            raise refuse(
                "runtime",
                self.runtime.name,
                "a BuiltinTrainer needs a TorchTune runtime, called WORD-MODEL-SIZE, such as torchtune-llama3.2-1b",
            )
        if self.workspace and (self.initializer or model_of_runtime(self.runtime.name)):
            # Its mount would take the place of the one at /workspace that initializers fill; JobSet 0.12 then refuses
            # to make the job, and the TrainJob hangs with nothing but an event.
            raise refuse(
                "workspace",
                self.workspace.claim,
                f"initializers and training on {self.runtime.name} share a volume of their own at /workspace; for your "
                f"own claim run InitializeDataset, InitializeModel and FineTune(workspace=...) on {STOCK_RUNTIME}",
            )
        if isinstance(self.trainer, BuiltinTrainer):
            check_recipe(model_of_runtime(self.runtime.name), self.trainer.config, field="trainer.config", builtin=True)
        return self

"""Request for one TrainJob with any trainer, and the check of the models that it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.base_request import BaseRequest, WaitSettings
from trainjob.spec.code import CodeField
from trainjob.spec.framework import get_framework
from trainjob.spec.initializers import Initializer
from trainjob.spec.queue import Queue
from trainjob.spec.resources import Runtime, RuntimeField, get_builtin_example, is_stock_builtin
from trainjob.spec.tracking import Tracking, needs_workspace
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainerContainer, Trainer, to_trainer
from trainjob.spec.volumes import WorkspaceField, check_workspace_is_free
from trainjob.spec.watchdog import Watchdog

STOCK_RUNTIME = "torch-distributed"
Program = Literal["packed", "image"]
"""Place of the code of a step's program: packed into the command of its pods, or contained in their image."""
_JOB_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _validate_job_name(name: str) -> str:
    if not _JOB_NAME.fullmatch(name):
        raise invalid_field("", name, "it must be the name of a TrainJob, such as the output `job` of its step")
    return name


JobNames = tuple[Annotated[str, AfterValidator(_validate_job_name)], ...]


class ModelCheck(Spec):
    """Folders of which no one may have a model of another workflow run.

    A folder without a record of a TrainJob is accepted.

    Attributes:
        folders: folders below `/workspace`.
        after_jobs: names of TrainJobs that may have trained the model, also in another workflow run.
    """

    folders: tuple[str, ...]
    after_jobs: JobNames = ()


def check_suspension(request: WaitSettings, queue: Queue | None, runtime: Runtime | None) -> None:
    """Refuse a request that suspends a TrainJob which cannot be suspended.

    It may do so at the creation, or by an action at the end. Kueue reverts the suspension of a TrainJob in a queue
    within 0.2 s (Kueue 0.17). [is_stock_builtin][] explains the other reason.

    Args:
        request: the request.
        queue: its Kueue queue, if any.
        runtime: its runtime; None skips the check of the runtime.

    Raises:
        InvalidSpec: the TrainJob cannot be suspended; the error names the field.
    """
    why = f"Kueue would resume a TrainJob of the queue {queue.name}" if queue else ""
    if runtime and is_stock_builtin(runtime.name):
        why = f"a TrainJob on the stock runtime {runtime.name} can't be suspended"
    for name in ("on_kill", "on_failure"):
        if why and getattr(request, name) == "suspend":
            raise invalid_field(name, "suspend", f"{why}: allowed are 'delete' and 'keep'")
    if why and isinstance(request, BaseRequest) and request.suspend:
        raise invalid_field("suspend", True, why)


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


class TrainJob(BaseRequest):
    """One TrainJob as a workflow step requests it.

    Attributes:
        trainer: a `CustomTrainer`, `CustomTrainerContainer` or `BuiltinTrainer`; by default the command of the runtime.
        runtime: name of the training runtime, or a `Runtime`; by default `torch-distributed`.
        initializer: an `Initializer`: Jobs of the same TrainJob that fetch dataset and model, on runtimes that have
            them.
        workspace: PersistentVolumeClaim that is mounted at `/workspace`.
        tracking: experiment tracker that gets the parameters, and the metrics in the training's log: an `MLflow`,
            `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or `tensorboard`). The
            image must contain Python, and the trainer must have a command.
        watchdog: limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
            fields; by default nobody watches. The image must contain Python, and the trainer must have a command.
        program: where the code of `tracking`, `watchdog` and `model_check` comes from: `packed` sends it in the command
            of the pods; `image` runs the `trainjob` of the image, with readable arguments.
        model_check: folders that must have no model of another workflow run: a `ModelCheck` or a dict of its fields.
            The image must contain Python, and the trainer must have a command.
        max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
            Python and files, None (null) leaves it to the runtime.
        code: the same as `code` of the trainer, which gets it.
        options: options of the Kubeflow SDK's `train`, such as `Labels`, of `trainjob.options` or of the SDK; each
            sets another field.
    """

    trainer: Trainer = Field(default_factory=CustomTrainerContainer)
    runtime: RuntimeField = Field(default_factory=lambda: Runtime(name=STOCK_RUNTIME))
    initializer: Initializer | None = None
    workspace: WorkspaceField | None = None
    tracking: Tracking | None = None
    watchdog: Watchdog | None = None
    program: Program = "packed"
    model_check: ModelCheck | None = None
    max_restarts: int | None = Field(default=0, ge=0)
    code: CodeField | None = Field(default=None, exclude=True)
    options: tuple[Any, ...] = Field(default=(), exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _apply_options(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or fields.keys() <= cls.model_fields.keys() - {"options"}:
            return fields
        from trainjob.spec.sdk_options import apply_options  # only here: few DAGs need it when they are parsed

        return apply_options(fields, [*CustomTrainerContainer.model_fields])

    @model_validator(mode="before")
    @classmethod
    def _give_code_to_trainer(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or not fields.get("code"):
            return fields
        trainer, code = to_trainer(fields.get("trainer") or {}), fields["code"]
        if isinstance(trainer, BuiltinTrainer):
            rule = "a BuiltinTrainer runs the runtime's own program: give a CustomTrainer or a CustomTrainerContainer"
            raise invalid_field("code", code, rule)
        if trainer.code is not None:
            raise invalid_field("code", code, "the trainer has code, too: remove one of them")
        return {**fields, "trainer": type(trainer).from_object({**dict(trainer), "code": code}), "code": None}

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
                "own PersistentVolumeClaim run InitializeDataset, InitializeModel and FineTune(workspace=...) on "
                f"{STOCK_RUNTIME}",
            )
        self._check_code()
        self._check_supervision()
        self._check_model_check()
        check_suspension(self, self.queue, self.runtime)
        check_queue(self.queue, self.runtime)
        shared = f"the volume that initializers and training on {self.runtime.name} share"
        taken = "the workspace" if self.workspace else shared if initialized else ""
        check_workspace_is_free(self.volumes, taken_by=taken)
        if isinstance(self.trainer, BuiltinTrainer):
            config, model = self.trainer.config, self.runtime.builtin_model
            get_framework(config).check_builtin(config, model, "trainer.config")
        return self

    def _check_code(self) -> None:
        trainer = self.trainer
        if not isinstance(trainer, CustomTrainerContainer):
            return
        for name in ("module", "script"):
            if (given := getattr(trainer, name)) and trainer.code is None:
                rule = 'it is in the project that travels: give its folder, such as code="."'
                raise invalid_field(f"trainer.{name}", given, rule)
        if trainer.code and not trainer.has_start:
            raise invalid_field("trainer.module", None, "give module, script or command, because code needs a start")

    def _check_model_check(self) -> None:
        if self.model_check is None:
            return
        if isinstance(self.trainer, BuiltinTrainer):
            rule = "a BuiltinTrainer has its own PersistentVolumeClaim: leave it out"
            raise invalid_field("model_check", self.model_check, rule)
        if isinstance(self.trainer, CustomTrainerContainer) and not self.trainer.has_start:
            raise invalid_field("trainer.command", None, "give the command to start, because model_check needs it")
        if self.workspace is None:
            raise invalid_field("workspace", None, "give the workspace with the folders of model_check")

    def _check_supervision(self) -> None:
        for name, verb in (("tracking", "tracked"), ("watchdog", "watched")):
            given = getattr(self, name)
            if given and isinstance(self.trainer, BuiltinTrainer):
                rule = f"a BuiltinTrainer can't be {verb}, because the runtime's own program runs"
                raise invalid_field(name, given, f"{rule}: use FineTune(workspace=...)")
            if given and isinstance(self.trainer, CustomTrainerContainer) and not self.trainer.has_start:
                raise invalid_field("trainer.command", None, f"give the command to start, because {name} needs it")
        if self.tracking and needs_workspace(self.tracking) and self.workspace is None:
            raise invalid_field("workspace", None, "give a workspace, because the tracker writes its files there")

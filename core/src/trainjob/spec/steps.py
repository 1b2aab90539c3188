"""The steps of a fine-tuning chain, as people ask for them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from trainjob.spec.base import as_json, refuse
from trainjob.spec.framework import FrameworkConfig, FrameworkConfigField, default_config, framework_of
from trainjob.spec.initializers import (
    DEFAULT_MODEL_IGNORE_PATTERNS,
    DatasetInitializer,
    ModelInitializer,
    checked_dataset,
    checked_model,
)
from trainjob.spec.job import (
    STOCK_RUNTIME,
    Deadline,
    EndAction,
    JobName,
    TimeToLive,
    TrainJob,
    check_end_actions,
    check_queue,
)
from trainjob.spec.manifest import TrainJobManifest
from trainjob.spec.registry import ModelRegistry
from trainjob.spec.resources import Placement, QueueField, Resources, Runtime, RuntimeField
from trainjob.spec.secrets import Endpoint, Env, Region, Secret, WithoutCredentials, checked_location
from trainjob.spec.volumes import Volumes, WorkspaceField, check_workspace_is_free

# What git takes for a name, a little narrower (git 2.47, git-check-ref-format).
_REVISION = re.compile(r"[\w][\w./+-]{0,254}")


class _Step(WithoutCredentials):
    """What every step takes.

    Attributes:
        name: begins the TrainJob's name; by default the task's.
        placement: where its pods may run, and as whom.
        volumes: what its pods mount besides the workspace.
        queue: a Kueue queue to wait in.
        deadline: how long it may be active.
        ttl_after_success: how long its TrainJob stays when it is complete; see `TrainJob`.
        ttl_after_failure: the same when it has failed.
        on_kill: what becomes of its TrainJob when who asked for it is told to end; see `TrainJob`.
        on_failure: what becomes of it when it is ended for its restarts; see `TrainJob`.
        env: more environment variables; secrets as `SecretKeyReference`.
        secret: the Secret with its credentials.
    """

    name: JobName | None = None
    placement: Placement | None = None
    volumes: Volumes = ()
    queue: QueueField | None = None
    deadline: Deadline | None = None
    ttl_after_success: TimeToLive | None = None
    ttl_after_failure: TimeToLive | None = None
    on_kill: EndAction = "delete"
    on_failure: EndAction = "delete"
    env: Env | None = None
    secret: Secret | None = None

    @model_validator(mode="after")
    def _fits_its_surroundings(self) -> Self:
        check_workspace_is_free(self.volumes, taken_by="the step's workspace")
        check_end_actions(self.on_kill, self.on_failure, self.queue, None)
        return self


class _Initialize(_Step):
    """Fetches from a store into the workspace.

    Attributes:
        storage_uri: where from.
        workspace: the claim to fill.
        revision: of a repository on the Hub: a branch, a tag or a commit; None means the newest commit of `main`.
        ignore_patterns: files not to fetch.
        endpoint: the object store's URL, where it is not AWS or Google, or the Hub's.
        region: an S3 bucket's region.
        role_arn: the AWS role to assume.
        image: an image with Python, huggingface_hub and opendal; None means upstream's initializer.
        resources: what the step needs, such as `{"memory": "4Gi"}`.
    """

    storage_uri: str
    workspace: WorkspaceField
    revision: str | None = None
    ignore_patterns: tuple[str, ...] | None = None
    endpoint: Endpoint | None = None
    region: Region | None = None
    role_arn: str | None = None
    image: str | None = None
    resources: Resources | None = None

    @field_validator("storage_uri")
    @classmethod
    def _is_known(cls, uri: str) -> str:
        return checked_location(uri, "", ("hf", "s3", "gs"))

    @model_validator(mode="after")
    def _has_revisions(self) -> Self:
        if self.revision is None:
            return self
        if not self.storage_uri.startswith("hf://"):
            rule = (
                "only a repository on the Hub has revisions; in an object store, keep each version below its own prefix"
            )
            raise refuse("revision", self.revision, rule)
        if not _REVISION.fullmatch(self.revision):
            raise refuse("revision", self.revision, "it must be a branch, a tag or a commit, such as v1.0")
        return self


class InitializeDataset(_Initialize):
    """Fetches a dataset into `/workspace/dataset`.

    From `hf://organization/name[/path]`, `s3://bucket/path` or `gs://bucket/path`.
    """

    @field_validator("storage_uri")
    @classmethod
    def _is_a_repository(cls, uri: str) -> str:
        return checked_dataset(uri)


class InitializeModel(_Initialize):
    """Fetches a model into `/workspace/model`.

    From `hf://organization/name`, `s3://bucket/path` or `gs://bucket/path`.
    """

    ignore_patterns: tuple[str, ...] | None = DEFAULT_MODEL_IGNORE_PATTERNS

    @field_validator("storage_uri")
    @classmethod
    def _is_a_repository(cls, uri: str) -> str:
        return checked_model(uri)


class FineTune(_Step):
    """Fine-tunes a model with a training framework.

    Two ways. With a `workspace` (the usual one in a chain), the stock runtime runs the framework's command on what lies
    in `/workspace/dataset` and `/workspace/model`, and checkpoints go to `/workspace/output`. With `dataset` or
    `model_initializer` instead, one TrainJob on a `torchtune-*` runtime fetches and trains; `secret` is then also for
    those of them that name none.

    Attributes:
        config: the training's configuration, a `TorchTuneConfig`; its class chooses the framework.
        model: the model to train. TorchTune has recipes for `llama3.2-1b`, `llama3.2-3b`, `llama3.3-70b` and
            `qwen2.5-1.5b`.
        workspace: the claim with dataset and model.
        dataset: without a workspace: where the dataset comes from.
        model_initializer: without a workspace: where the model comes from.
        dataset_path: where the data files lie below `/workspace/dataset`, with the workspace: a folder, or a file; by
            default `data`, as in the stock runtimes.
        model_path: where the model lies below `/workspace`, with the workspace; by default `model`. Such as where an
            export has put an earlier training's.
        output_path: where the checkpoints go below `/workspace/output`, with the workspace; trainings that share one
            need one each.
        runtime: the training runtime; None means the stock one for the way.
        image: an image with the framework, with the workspace; None means upstream's.
        max_restarts: how often a failing container may be restarted in place.
        resume: go on after the last whole epoch that an earlier attempt of the same run left on the workspace, if it
            asked for the same and model and dataset are the same files; see `can_resume`.
    """

    config: FrameworkConfigField = Field(default_factory=default_config)
    model: str
    workspace: WorkspaceField | None = None
    dataset: DatasetInitializer | None = None
    model_initializer: ModelInitializer | None = None
    dataset_path: str = "data"
    model_path: str = "model"
    output_path: str = ""
    runtime: RuntimeField | None = None
    image: str | None = None
    max_restarts: int | None = Field(default=0, ge=0)
    resume: bool = True

    @property
    def can_resume(self) -> bool:
        """Whether an attempt may continue after the last complete epoch of an earlier one.

        Never on a runtime that makes a volume for each TrainJob; the framework may have more conditions.
        """
        return self.resume and self.workspace is not None and framework_of(self.config).can_resume(self)

    @property
    def training_runtime(self) -> Runtime:
        """The given runtime, or the stock one: for any command with a workspace, and the model's own without."""
        stock = STOCK_RUNTIME if self.workspace else f"{self.config.framework}-{self.model}"
        return self.runtime or Runtime(name=stock)

    @field_validator("model")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        config = info.data.get("config")  # None if it is invalid itself
        return framework_of(config).model_name(name) if isinstance(config, FrameworkConfig) else name

    @field_validator("dataset_path", "output_path")
    @classmethod
    def _is_below(cls, path: str, info: ValidationInfo) -> str:
        return _path_below(path, str(info.field_name).removesuffix("_path"))

    @field_validator("model_path")
    @classmethod
    def _is_a_folder(cls, path: str) -> str:
        found = _path_below(path, "")
        if found.split("/")[0] in ("", "output"):  # TorchTune does not train into its own model (torchtune 0.6.1)
            rule = "it must be a folder below /workspace, such as model; what lies in output has to be exported first"
            raise refuse("", path, rule)
        return found

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        inline = self.dataset or self.model_initializer
        if self.workspace and inline:
            raise refuse(
                "workspace", self.workspace.place, "give a workspace, or dataset and model_initializer, not both ways"
            )
        if not self.workspace and not inline:
            raise refuse(
                "workspace",
                None,
                "give the claim that holds dataset and model, or dataset and model_initializer to fetch both first",
            )
        if not self.workspace:
            self._check_builtin()
        elif self.runtime and self.runtime.builtin_model:
            raise refuse(
                "runtime",
                self.runtime.name,
                f"it fetches dataset and model itself; with a workspace leave it out ({STOCK_RUNTIME})",
            )
        framework_of(self.config).check(self)
        return self

    def _check_builtin(self) -> None:
        if self.image:
            raise refuse(
                "image", self.image, "it is for the way with a workspace; otherwise the runtime names the image"
            )
        if self.dataset_path != "data":
            raise refuse("dataset_path", self.dataset_path, "it is for the way with a workspace; the URI tells it here")
        for name in ("model_path", "output_path"):
            if (given := getattr(self, name)) != type(self).model_fields[name].default:
                raise refuse(name, given, "it is for the way with a workspace")
        check_queue(self.queue, self.training_runtime)
        check_end_actions(self.on_kill, self.on_failure, None, self.training_runtime)


class ExportModel(_Step):
    """Makes one clean Hugging Face folder of the final checkpoint and sends it to its destination.

    Attributes:
        workspace: the claim with `/workspace/output`.
        output_path: where the checkpoints are below `/workspace/output`, as the fine-tuning was told.
        destination: `s3://bucket/path`, `gs://bucket/path`, `hf://organization/name`, or a path below `/workspace`.
        endpoint: the object store's URL, where it is not AWS or Google.
        region: an S3 bucket's region.
        image: an image with Python, huggingface_hub and opendal; None means upstream's model initializer.
        resources: what the step needs.
        metadata: what `manifest.json` is to say besides: JSON values.
        registry: a Kubeflow Model Registry that is told of the model once all of it has arrived.
    """

    workspace: WorkspaceField
    destination: str
    output_path: str = ""
    endpoint: Endpoint | None = None
    region: Region | None = None
    image: str | None = None
    resources: Resources | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(as_json)] = Field(default_factory=dict)
    registry: ModelRegistry | None = None

    @field_validator("output_path")
    @classmethod
    def _is_below(cls, path: str) -> str:
        return _path_below(path, "output")

    @field_validator("destination")
    @classmethod
    def _is_known(cls, destination: str) -> str:
        path = destination.removeprefix("file://")
        if path.startswith("/"):
            parts = [part for part in path.split("/") if part not in ("", ".")]
            if len(parts) < 2 or parts[0] != "workspace" or ".." in parts:
                raise refuse("", destination, "a path must lie below /workspace, such as /workspace/export")
            if parts[1] in ("output", "model", "dataset"):
                raise refuse(
                    "", destination, f"/workspace/{parts[1]} belongs to another step; such as /workspace/export"
                )
            return path
        if destination.startswith("oci://"):
            rule = "nothing in the step's image writes to a registry of images"
            raise refuse("", destination, f"{rule}: give s3://…, gs://…, hf://… or a path below /workspace")
        return checked_location(destination, "", ("s3", "gs", "hf"))


def _path_below(path: str, folder: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "=" in path:
        place = f"/workspace/{folder}".rstrip("/")
        raise refuse("", path, f"it must be a path below {place}, without '..' and '='")
    return path.strip("/")


Step = InitializeDataset | InitializeModel | FineTune | ExportModel | TrainJob | TrainJobManifest

"""The steps of a fine-tuning chain, as people ask for them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.spec.base import refuse
from trainjob.spec.initializers import (
    DEFAULT_MODEL_IGNORE_PATTERNS,
    DatasetInitializer,
    ModelInitializer,
    checked_dataset,
    checked_model,
)
from trainjob.spec.job import STOCK_RUNTIME, Deadline, JobName, TrainJob
from trainjob.spec.recipes import check_recipe, model_named, model_of_runtime
from trainjob.spec.resources import Placement, QueueField, Resources, RuntimeField, WorkspaceField
from trainjob.spec.secrets import Endpoint, Env, Secret, WithoutCredentials, checked_location
from trainjob.spec.torchtune import TorchTuneConfig


class _Step(WithoutCredentials):
    """What every step takes.

    Attributes:
        name: begins the TrainJob's name; by default the task's.
        placement: where its pods may run, and as whom.
        queue: a Kueue queue to wait in.
        deadline: how long it may be active.
        env: more environment variables; secrets as `SecretKeyReference`.
        secret: the Secret with its credentials.
    """

    name: JobName | None = None
    placement: Placement | None = None
    queue: QueueField | None = None
    deadline: Deadline | None = None
    env: Env | None = None
    secret: Secret | None = None


class _Initialize(_Step):
    """Fetches from a store into the workspace.

    Attributes:
        storage_uri: where from.
        workspace: the claim to fill.
        ignore_patterns: files not to fetch.
        endpoint: the object store's URL, where it is not AWS.
        region: the bucket's region.
        role_arn: the AWS role to assume.
        image: the initializer image; None means upstream's.
        resources: what the step needs, such as `{"memory": "4Gi"}`.
    """

    storage_uri: str
    workspace: WorkspaceField
    ignore_patterns: tuple[str, ...] | None = None
    endpoint: Endpoint | None = None
    region: str | None = None
    role_arn: str | None = None
    image: str | None = None
    resources: Resources | None = None

    @field_validator("storage_uri")
    @classmethod
    def _is_known(cls, uri: str) -> str:
        return checked_location(uri, "", ("hf", "s3"))


class InitializeDataset(_Initialize):
    """Fetches a dataset into `/workspace/dataset`: `hf://organization/name[/path]` or `s3://bucket/path`."""

    @field_validator("storage_uri")
    @classmethod
    def _is_a_repository(cls, uri: str) -> str:
        return checked_dataset(uri)


class InitializeModel(_Initialize):
    """Fetches a model into `/workspace/model`: `hf://organization/name` or `s3://bucket/path`."""

    ignore_patterns: tuple[str, ...] | None = DEFAULT_MODEL_IGNORE_PATTERNS

    @field_validator("storage_uri")
    @classmethod
    def _is_a_repository(cls, uri: str) -> str:
        return checked_model(uri)


class FineTune(_Step):
    """Fine-tunes a model with TorchTune.

    Two ways. With a `workspace` (the usual one in a chain), the stock runtime runs TorchTune's command on what lies in
    `/workspace/dataset` and `/workspace/model`, and checkpoints go to `/workspace/output`: any recipe's override works.
    With `dataset` or `model_initializer` instead, one TrainJob on a `torchtune-*` runtime fetches and trains; `secret`
    is then also for those of them that name none.

    Attributes:
        model: whose recipe: `llama3.2-1b`, `llama3.2-3b`, `llama3.3-70b`, `qwen2.5-1.5b`.
        config: what TorchTune is told.
        workspace: the claim with dataset and model.
        dataset: without a workspace: where the dataset comes from.
        model_initializer: without a workspace: where the model comes from.
        dataset_path: where the data files lie below `/workspace/dataset`, with the workspace: a folder, or a file; by
            default `data`, as in the stock TorchTune runtimes.
        runtime: the training runtime; None means the stock one for the way.
        image: the TorchTune image, with the workspace; None means upstream's.
        max_restarts: how often a failing container may be restarted in place.
    """

    model: str
    config: TorchTuneConfig = Field(default_factory=TorchTuneConfig)
    workspace: WorkspaceField | None = None
    dataset: DatasetInitializer | None = None
    model_initializer: ModelInitializer | None = None
    dataset_path: str = "data"
    runtime: RuntimeField | None = None
    image: str | None = None
    max_restarts: int | None = Field(default=0, ge=0)

    @field_validator("model")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            return model_named(name).name
        except ValueError as error:
            raise refuse("", name, getattr(error, "problems")[0].allowed) from None  # noqa: B009

    @field_validator("dataset_path")
    @classmethod
    def _is_below(cls, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/") or "=" in path:
            raise refuse("", path, "it must be a path below /workspace/dataset, without '..' and '='")
        return path.strip("/")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        inline = self.dataset or self.model_initializer
        if self.workspace and inline:
            raise refuse(
                "workspace", self.workspace.claim, "give a workspace, or dataset and model_initializer, not both ways"
            )
        if not self.workspace and not inline:
            raise refuse(
                "workspace",
                None,
                "give the claim that holds dataset and model, or dataset and model_initializer to fetch both first",
            )
        if self.workspace:
            self._check_split()
        else:
            self._check_builtin()
        return self

    def _check_split(self) -> None:
        if self.runtime and model_of_runtime(self.runtime.name):
            raise refuse(
                "runtime",
                self.runtime.name,
                f"it fetches dataset and model itself; with a workspace leave it out ({STOCK_RUNTIME})",
            )
        check_recipe(self.model, self.config)

    def _check_builtin(self) -> None:
        if self.image:
            raise refuse(
                "image", self.image, "it is for the way with a workspace; otherwise the runtime names the image"
            )
        if self.dataset_path != "data":
            raise refuse("dataset_path", self.dataset_path, "it is for the way with a workspace; the URI tells it here")
        if not self.runtime and not model_named(self.model).runtime:
            raise refuse("runtime", None, f"the Trainer ships none for {self.model}: name yours, or use a workspace")
        if self.runtime and model_of_runtime(self.runtime.name) != self.model:
            raise refuse("runtime", self.runtime.name, f"it must be called WORD-{self.model}, as it names the model")
        if not self.runtime and self.queue:
            # The JobSet of a stock torchtune runtime can't be changed once it exists, so a TrainJob that is suspended
            # at first never starts (seen on Trainer 2.3.0 with JobSet 0.12.0).
            raise refuse(
                "queue", self.queue.name, "not on a stock torchtune runtime: it would wait for ever; use a workspace"
            )
        check_recipe(self.model, self.config, builtin=True)


class ExportModel(_Step):
    """Makes one clean Hugging Face folder of the final checkpoint and sends it to its destination.

    Attributes:
        workspace: the claim with `/workspace/output`.
        destination: `s3://bucket/path`, `hf://organization/name`, or a path below `/workspace`.
        endpoint: the object store's URL, where it is not AWS.
        region: the bucket's region.
        image: an image with Python, huggingface_hub and opendal; None means upstream's model initializer.
        resources: what the step needs.
        metadata: what `manifest.json` is to say besides: JSON values.
    """

    workspace: WorkspaceField
    destination: str
    endpoint: Endpoint | None = None
    region: str | None = None
    image: str | None = None
    resources: Resources | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

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
        return checked_location(destination, "", ("s3", "hf", "file"))


Step = InitializeDataset | InitializeModel | FineTune | ExportModel | TrainJob

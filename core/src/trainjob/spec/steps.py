"""The steps of a fine-tuning chain, as people ask for them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from trainjob.spec.base import as_json, refuse
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
from trainjob.spec.recipes import check_recipe, model_named, model_of_runtime
from trainjob.spec.registry import ModelRegistry
from trainjob.spec.resources import Placement, QueueField, Resources, Runtime, RuntimeField
from trainjob.spec.secrets import Endpoint, Env, Region, Secret, WithoutCredentials, checked_location
from trainjob.spec.torchtune import TorchTuneConfig
from trainjob.spec.volumes import Volumes, WorkspaceField, check_workspace_is_free

# What git takes for a name, a little narrower (git 2.47, git-check-ref-format).
_REVISION = re.compile(r"[\w][\w./+-]{0,254}")


_ADAPTER_ALONE = "save_adapter_weights_only=True"
# Overrides of TorchTune's configuration with which it is not ours to say how a training resumes.
_DECIDES_RESUMING = tuple(f"{part}{end}" for part in ("checkpointer", "lr_scheduler") for end in ("=", "._component_="))


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
        model_path: where the model lies below `/workspace`, with the workspace; by default `model`. Such as where an
            export has put an earlier training's.
        output_path: where the checkpoints go below `/workspace/output`, with the workspace; trainings that share one
            need one each.
        runtime: the training runtime; None means the stock one for the way.
        image: the TorchTune image, with the workspace; None means upstream's.
        max_restarts: how often a failing container may be restarted in place.
        resume: go on after the last whole epoch that an earlier attempt of the same run left on the workspace, if it
            asked for the same and model and dataset are the same files; see `can_resume`.
    """

    model: str
    config: TorchTuneConfig = Field(default_factory=TorchTuneConfig)
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
        """Whether an attempt may go on after an earlier one's last whole epoch.

        Not where nothing is trained, on a runtime that makes a volume for each TrainJob, on several nodes, which would
        each decide for themselves, or with a checkpointer or learning rate schedule of one's own; nor with LoRA on a
        CPU, where saving merges into the very weights that are trained on (torchtune 0.6.1, get_merged_lora_ckpt),
        unless the adapter is saved alone.
        """
        overrides = self.config.overrides
        own = any(override.startswith(_DECIDES_RESUMING) for override in overrides)
        merged = self.config.peft_config and "device=cpu" in overrides and _ADAPTER_ALONE not in overrides
        one_node = (self.config.num_nodes or 1) == 1
        trains = self.config.quantization is None
        return self.resume and self.workspace is not None and trains and one_node and not own and not merged

    @field_validator("model")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            return model_named(name).name
        except ValueError as error:
            raise refuse("", name, getattr(error, "problems")[0].allowed) from None  # noqa: B009

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
        for override in self.config.overrides if self.resume else ():
            if override.startswith("resume_from_checkpoint="):
                rule = "what was saved is found and resumed by itself; give resume=False to say yourself from what"
                raise refuse("config.overrides", override, rule)

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
        if not self.runtime and not model_named(self.model).runtime:
            raise refuse("runtime", None, f"the Trainer ships none for {self.model}: name yours, or use a workspace")
        if self.runtime and model_of_runtime(self.runtime.name) != self.model:
            raise refuse("runtime", self.runtime.name, f"it must be called WORD-{self.model}, as it names the model")
        runtime = self.runtime or Runtime(name=f"torchtune-{self.model}")
        check_queue(self.queue, runtime)
        check_end_actions(self.on_kill, self.on_failure, None, runtime)
        check_recipe(self.model, self.config, builtin=True)


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

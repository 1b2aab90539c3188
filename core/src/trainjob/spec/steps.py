"""Requests for the steps of a fine-tuning workflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from trainjob.addresses import STORE_SCHEMES, Kind, parse_destination, parse_source
from trainjob.errors import InvalidSpec
from trainjob.spec.base import invalid_field, to_json_value
from trainjob.spec.base_request import STEP_ALIASES
from trainjob.spec.base_step import BaseStep, check_program_image
from trainjob.spec.checkpoints import CheckpointUri, ResumeFromField
from trainjob.spec.credential_checks import check_values
from trainjob.spec.dataset_rows import ColumnNames, SplitNotation, Subset
from trainjob.spec.evaluation import Evaluate, Generate
from trainjob.spec.framework import FrameworkConfig, FrameworkConfigField, find_config_field, get_framework
from trainjob.spec.initializers import DatasetInitializer, ModelInitializer
from trainjob.spec.job import STOCK_RUNTIME, JobNames, TrainJob, check_queue, check_suspension
from trainjob.spec.manifest import TrainJobManifest
from trainjob.spec.promotion import Promote, Rollback
from trainjob.spec.registry import MLflowRegistry, Registry
from trainjob.spec.resources import Resources, Runtime, RuntimeField
from trainjob.spec.secrets import Endpoint, Region
from trainjob.spec.tracking import Tracking
from trainjob.spec.volumes import WorkspaceField, validate_path_below
from trainjob.spec.watchdog import Watchdog

# Names that git allows, a little stricter (git 2.47, git-check-ref-format).
_REVISION = re.compile(r"[\w][\w./+-]{0,254}")
# Why the address of a source that is no store has no Secret.
_NO_SECRET = {
    "http": "a token must not be sent without TLS: write the address with https://",
    "pvc": "files of a PersistentVolumeClaim need no credentials",
    "oci": "the node pulls the image: name its pull secret in placement.image_pull_secrets",
}


class _InitializeStep(BaseStep):
    """Base class of the steps that fetch files into the workspace.

    Attributes:
        storage_uri: address to fetch from, such as `s3://bucket/path`, `pvc://claim/path`, `oci://registry/image:tag`,
            or `hf://organization/name`, which a revision may follow: `hf://organization/name@v1.0`.
        workspace: PersistentVolumeClaim into which the files are written.
        revision: branch, tag or commit of a repository on the Hugging Face Hub; by default the newest commit of `main`.
        ignore_patterns: patterns of the files that are not fetched; by default a model's weights in other formats than
            safetensors, if it has safetensors.
        endpoint: URL of an object store other than AWS, Google or Azure, or of the Hub.
        region: region of an S3 bucket.
        role_arn: ARN of the AWS role to assume.
        image: image with Python, huggingface_hub and opendal; by default the Trainer's own initializer.
        resources: resources of the step's pod, such as `{"memory": "4Gi"}`.
        max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
            Python and files, None (null) leaves it to the runtime.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        **dict.fromkeys(("source", "uri", "url", "repo_id", "dataset", "model"), "storage_uri"),
    }

    _kind: ClassVar[Kind]

    storage_uri: str
    workspace: WorkspaceField
    revision: str | None = None
    ignore_patterns: tuple[str, ...] | None = None
    endpoint: Endpoint | None = None
    region: Region | None = None
    role_arn: str | None = None
    image: str | None = None
    resources: Resources | None = None
    max_restarts: int | None = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _split_revision(cls, data: Any) -> Any:
        uri = data.get("storage_uri") if isinstance(data, Mapping) else None
        try:
            address = parse_source(uri, cls._kind) if isinstance(uri, str) else None
        except InvalidSpec:  # the field's validator reports it, together with the problems of other fields
            return data
        if not address or address.scheme != "hf":
            return data
        revision = data.get("revision")
        if address.revision and revision not in (None, address.revision):
            raise invalid_field("revision", revision, f"the address has the revision {address.revision}: give one")
        return {**data, "storage_uri": address.hub_uri, "revision": address.revision or revision}

    @field_validator("storage_uri")
    @classmethod
    def _validate_address(cls, uri: str) -> str:
        parse_source(uri, cls._kind)
        return uri

    @model_validator(mode="after")
    def _validate_image(self) -> Self:
        check_program_image(self.program, self.image, "huggingface_hub and opendal")
        return self

    @model_validator(mode="after")
    def _reject_fields_of_stores(self) -> Self:
        scheme = parse_source(self.storage_uri, self._kind).scheme
        if scheme in STORE_SCHEMES:
            return self
        for name in ("endpoint", "region", "role_arn"):
            if (given := getattr(self, name)) is not None:
                raise invalid_field(name, given, f"it is only for stores; the address says where the {self._kind} is")
        if self.secret and (rule := _NO_SECRET.get(scheme)):
            raise invalid_field("secret", self.secret.name, rule)
        return self

    @model_validator(mode="after")
    def _reject_own_folder(self) -> Self:
        address = parse_source(self.storage_uri, self._kind)
        if address.scheme != "pvc" or address.bucket != self.workspace.claim:
            return self
        source, target = PurePosixPath("/", address.path), PurePosixPath("/", self.workspace.sub_path, self._kind)
        if source.is_relative_to(target) or target.is_relative_to(source):
            rule = f"the step itself writes to {target} of this PersistentVolumeClaim: name another folder"
            raise invalid_field("storage_uri", self.storage_uri, rule)
        return self

    @model_validator(mode="after")
    def _validate_revision(self) -> Self:
        if self.revision is None:
            return self
        if not self.storage_uri.startswith("hf://"):
            rule = (
                "only a repository on the Hub has revisions; in an object store, keep each version below its own prefix"
            )
            raise invalid_field("revision", self.revision, rule)
        if not _REVISION.fullmatch(self.revision):
            raise invalid_field("revision", self.revision, "it must be a branch, a tag or a commit, such as v1.0")
        return self


class InitializeDataset(_InitializeStep):
    """Step that fetches a dataset into `/workspace/dataset`, and prepares its rows.

    The source is an address such as `hf://organization/name`, `s3://bucket/path`, `az://container/path`,
    `https://host/file.jsonl`, `pvc://claim/path` or `oci://registry/image:tag`.

    The rows are prepared only with `subset`, `split`, `eval_split`, `eval_fraction` or `columns`. The files are then
    fetched into the folder `source`; of a repository, only those in the address's folder. Their rows are written as
    JSON Lines to `data/train.jsonl`, and to `eval/eval.jsonl` for evaluation. Dates become texts in ISO 8601. Columns
    with images, audio or other bytes are refused.

    Attributes:
        subset: subset of the dataset, which is a configuration in its `README.md`; by default the only one, or its
            default.
        split: rows for training, in the notation of the library `datasets`, such as `train` or `train[:5000]`; by
            default `train`, or the only split.
        eval_split: rows for evaluation in the same notation, such as `test` or `validation[:500]`.
        eval_fraction: share of the rows for training that is held out for evaluation, such as 0.1. They are chosen at
            random with a fixed seed, so that they are the same in each run. Not together with `eval_split`.
        columns: names of the dataset's columns by their new names, such as `{"prompt": "question"}`. Other columns are
            kept.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **_InitializeStep.field_aliases,
        "config_name": "subset",
        "train_split": "split",
        **dict.fromkeys(("test_split", "validation_split"), "eval_split"),
        "test_size": "eval_fraction",
    }

    _kind: ClassVar[Kind] = "dataset"

    subset: Subset | None = None
    split: SplitNotation | None = None
    eval_split: SplitNotation | None = None
    eval_fraction: float | None = Field(default=None, gt=0, lt=1)
    columns: ColumnNames = Field(default_factory=dict)

    @property
    def eval_dataset_path(self) -> str:
        """Folder of the rows for evaluation below `/workspace/dataset`; empty without any."""
        return "eval" if self.eval_split or self.eval_fraction else ""

    @model_validator(mode="after")
    def _validate_evaluation(self) -> Self:
        if self.eval_split and self.eval_fraction:
            rule = "the rows for evaluation are those of eval_split: give one of the two"
            raise invalid_field("eval_fraction", self.eval_fraction, rule)
        return self


class InitializeModel(_InitializeStep):
    """Step that fetches a model into `/workspace/model`.

    The source is an address such as `hf://organization/name`, `s3://bucket/path`, `az://container/path`,
    `pvc://claim/path` or `oci://registry/image:tag`.
    """

    _kind: ClassVar[Kind] = "model"


class FineTune(BaseStep):
    """Step that fine-tunes a model with a training framework.

    It has two modes. With a `workspace`, which is usual in a workflow, the stock runtime runs the framework's command
    on the files in `/workspace/dataset` and `/workspace/model`. Checkpoints are written to `/workspace/output`. With
    `dataset` or `model_initializer` instead, one TrainJob on a runtime with a built-in trainer fetches and trains. In
    this mode, those of the two that name no Secret use `secret`.

    Attributes:
        config: configuration of the training, which is required; its class determines the framework. A dict of its
            fields also has the framework's name as `framework`.
        model: name of the model. A framework with recipes for certain models accepts only their names. With others, it
            is a free name; the trained model is the one in `model_path`.
        workspace: PersistentVolumeClaim with dataset and model.
        dataset: without a workspace: an initializer that fetches the dataset inside the same TrainJob.
        model_initializer: without a workspace: an initializer that fetches the model inside the same TrainJob.
        dataset_path: folder or file of the data below `/workspace/dataset`; `.` means the whole folder.
        model_path: folder of the model below `/workspace`, for example from the export of an earlier training.
        output_path: folder of the checkpoints below `/workspace/output`. Trainings that share a workspace each need
            their own folder.
        runtime: name of the training runtime, or a `Runtime`; by default the stock runtime `torch-distributed`.
        image: image with the framework, only with a workspace; by default the framework's, or the runtime's.
        max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
            Python and files, None (null) leaves it to the runtime.
        resume: whether to continue from the last complete checkpoint that an earlier attempt of the same run left on
            the workspace. What decides the weights must be the same, such as the learning rate and the files of model
            and dataset; see `trainjob.manifest.weight_fields`.
        resume_from: checkpoint of another training from which this one starts, with its own hyperparameters; only with
            a workspace: a `ResumeFrom` or a dict of its fields, a step, or a folder below `/workspace`. By default it
            starts from the model.
        checkpoint_uri: address in an object store, such as `s3://bucket/checkpoints`, to which the last complete
            checkpoint is copied while the training continues; only with a workspace. A retry whose workspace has no
            checkpoint fetches the copy. `secret` has the credentials. By default nothing is copied.
        checkpoint_endpoint: URL of this object store, if it is not AWS, Google or Azure.
        tracking: experiment tracker that gets the configuration as parameters, and the training's metrics: an `MLflow`,
            `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or `tensorboard`); only
            with a workspace. A retry continues the same tracked run.
        watchdog: limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
            fields; only with a workspace. By default nobody watches.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        "framework": "config.framework",
        **dict.fromkeys(("resources", "gpus", "num_gpus"), "config.resources_per_node"),
        **dict.fromkeys(("base_model", "model_name", "model_id"), "model"),
        **dict.fromkeys(("output", "output_dir"), "output_path"),
        "model_name_or_path": "model_path",
    }

    config: FrameworkConfigField = Field(default=None, validate_default=True)
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
    resume_from: ResumeFromField = None
    checkpoint_uri: CheckpointUri = None
    checkpoint_endpoint: Endpoint | None = None
    tracking: Tracking | None = None
    watchdog: Watchdog | None = None

    @classmethod
    def find_field(cls, name: str) -> str:
        """Return the path of the field that a name means, also in a configuration."""
        return super().find_field(name) or find_config_field(name)

    @property
    def can_resume(self) -> bool:
        """Whether an attempt may continue after the last complete epoch of an earlier one.

        It is false on a runtime that creates a volume for each TrainJob. The framework may have further conditions.
        """
        return self.resume and self.workspace is not None and get_framework(self.config).can_resume(self)

    @property
    def training_runtime(self) -> Runtime:
        """Training runtime of the step.

        Without a given runtime it is the stock one: `torch-distributed` with a workspace, else that of the model.
        """
        stock = STOCK_RUNTIME if self.workspace else f"{self.config.framework}-{self.model}"
        return self.runtime or Runtime(name=stock)

    @field_validator("model")
    @classmethod
    def _validate_model(cls, name: str, info: ValidationInfo) -> str:
        config = info.data.get("config")  # None if it is invalid itself
        return get_framework(config).canonical_model_name(name) if isinstance(config, FrameworkConfig) else name

    @field_validator("dataset_path", "output_path")
    @classmethod
    def _validate_path(cls, path: str, info: ValidationInfo) -> str:
        return validate_path_below(path, str(info.field_name).removesuffix("_path"))

    @field_validator("model_path")
    @classmethod
    def _validate_model_path(cls, path: str) -> str:
        found = validate_path_below(path, "")
        if found.split("/")[0] in ("", "output"):  # a training must not overwrite its own model
            rule = (
                "it must be a folder below /workspace, such as model; "
                "a model in /workspace/output must be exported first"
            )
            raise invalid_field("", path, rule)
        return found

    @model_validator(mode="after")
    def _validate_mode(self) -> Self:
        inline = self.dataset or self.model_initializer
        if self.workspace and inline:
            raise invalid_field(
                "workspace",
                self.workspace.location,
                "give either a workspace, or dataset and model_initializer, not both",
            )
        if not self.workspace and not inline:
            raise invalid_field(
                "workspace",
                None,
                "name the PersistentVolumeClaim that contains dataset and model, or give dataset and "
                "model_initializer to fetch them",
            )
        if not self.workspace:
            self._check_without_workspace()
        elif self.runtime and self.runtime.builtin_model:
            raise invalid_field(
                "runtime",
                self.runtime.name,
                f"this runtime fetches dataset and model itself; with a workspace, omit it to use {STOCK_RUNTIME}",
            )
        elif not self.runtime:
            check_program_image(self.program, self.image, "torch and the framework, or a runtime with such an image")
        get_framework(self.config).check_step(self)
        if self.resume_from is not None and not self.resume:
            rule = "it needs resume=True, because a retry continues from the checkpoints of this training"
            raise invalid_field("resume_from", self.resume_from, rule)
        if self.checkpoint_uri is not None and not self.resume:
            rule = "it needs resume=True, because only a training that may continue needs its checkpoints"
            raise invalid_field("checkpoint_uri", self.checkpoint_uri, rule)
        if self.checkpoint_endpoint is not None and self.checkpoint_uri is None:
            rule = "it needs checkpoint_uri, the address to which checkpoints are copied"
            raise invalid_field("checkpoint_endpoint", self.checkpoint_endpoint, rule)
        return self

    def _check_without_workspace(self) -> None:
        if self.image:
            raise invalid_field(
                "image", self.image, "it is allowed only with a workspace; without one, the runtime names the image"
            )
        for name in ("program", "tracking", "watchdog"):
            if (given := getattr(self, name)) != type(self).model_fields[name].default:
                rule = "it is allowed only with a workspace; without one, the runtime's own program runs"
                raise invalid_field(name, given, rule)
        if self.resume_from is not None:
            rule = "it is allowed only with a workspace, which has the checkpoints"
            raise invalid_field("resume_from", self.resume_from, rule)
        if self.checkpoint_uri is not None:
            rule = "it is allowed only with a workspace; without one, no checkpoint is continued"
            raise invalid_field("checkpoint_uri", self.checkpoint_uri, rule)
        if self.dataset_path != "data":
            raise invalid_field(
                "dataset_path",
                self.dataset_path,
                "it is allowed only with a workspace; without one, write the path into the dataset's URI",
            )
        for name in ("model_path", "output_path"):
            if (given := getattr(self, name)) != type(self).model_fields[name].default:
                raise invalid_field(name, given, "it is allowed only with a workspace")
        check_queue(self.queue, self.training_runtime)
        check_suspension(self, None, self.training_runtime)


def _validate_metadata(metadata: dict[str, Any]) -> Any:
    check_values(metadata)  # manifest.json is published with the model
    return to_json_value(metadata)


class ExportModel(BaseStep):
    """Step that exports the final checkpoint as a Hugging Face folder to its destination.

    Attributes:
        workspace: PersistentVolumeClaim with the fine-tuning's output.
        destination: an address such as `s3://bucket/path`, or a path below `/workspace`.
        output_path: folder of the checkpoints below `/workspace/output`, the same as in the fine-tuning.
        adapter: what to export of a LoRA training: `merge` for the merged model, or for the adapter if the training
            saved no merged model; `keep` for the adapter alone.
        endpoint: URL of an object store other than AWS, Google or Azure.
        region: region of an S3 bucket.
        role_arn: ARN of the AWS role to assume.
        image: image with Python, huggingface_hub and opendal; by default the Trainer's own model initializer.
        resources: resources of the step's pod, such as `{"memory": "4Gi"}`.
        after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
            workflow run. A checkpoint without a record of its TrainJob is always exported.
        any_run: whether to export the model of any workflow run.
        metadata: values to add to the export's `manifest.json`, such as base model and dataset.
        registry: where the model is registered after the upload is complete: a `ModelRegistry` (Kubeflow) or
            `MLflowRegistry`, or a dict of its fields; that of an `MLflowRegistry` has `"backend": "mlflow"`.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        **dict.fromkeys(("storage_uri", "target", "uri", "url", "output", "repo_id"), "destination"),
    }

    workspace: WorkspaceField
    destination: str
    output_path: str = ""
    adapter: Literal["merge", "keep"] = "merge"
    endpoint: Endpoint | None = None
    region: Region | None = None
    role_arn: str | None = None
    image: str | None = None
    resources: Resources | None = None
    after_jobs: JobNames = ()
    any_run: bool = False
    metadata: Annotated[dict[str, Any], AfterValidator(_validate_metadata)] = Field(default_factory=dict)
    registry: Registry | None = None

    @model_validator(mode="after")
    def _validate_image(self) -> Self:
        check_program_image(self.program, self.image, "huggingface_hub and opendal")
        return self

    @model_validator(mode="after")
    def _validate_registered_location(self) -> Self:
        is_path, address = self.destination.startswith("/"), self.destination.partition("://")[2]
        is_refused = bool(self.workspace.node_path) if is_path else "/" not in address.strip("/")
        if isinstance(self.registry, MLflowRegistry) and is_refused:
            rule = "MLflow accepts no path of a node and no bucket alone: export to a PVC or a folder in the bucket"
            raise invalid_field("destination", self.destination, rule)
        return self

    @field_validator("output_path")
    @classmethod
    def _validate_output_path(cls, path: str) -> str:
        return validate_path_below(path, "output")

    @field_validator("destination")
    @classmethod
    def _validate_destination(cls, destination: str) -> str:
        path = destination.removeprefix("file://")
        if path.startswith("/"):
            parts = [part for part in path.split("/") if part not in ("", ".")]
            if len(parts) < 2 or parts[0] != "workspace" or ".." in parts:
                raise invalid_field("", destination, "a path must lie below /workspace, such as /workspace/export")
            if parts[1] in ("output", "model", "dataset"):
                raise invalid_field(
                    "",
                    destination,
                    f"another step writes /workspace/{parts[1]}; name another folder, such as /workspace/export",
                )
            return path
        parse_destination(destination)
        return destination


Step = (
    InitializeDataset
    | InitializeModel
    | FineTune
    | ExportModel
    | Evaluate
    | Generate
    | Promote
    | Rollback
    | TrainJob
    | TrainJobManifest
)

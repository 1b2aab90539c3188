"""Sources of datasets and models, as in the Kubeflow SDK, with credentials by reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.addresses import Kind, check_uri, parse_source
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.problems import REDACTED
from trainjob.spec.secrets import CredentialFreeSpec, Endpoint, Env, Region, Secret

DEFAULT_MODEL_IGNORE_PATTERNS = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
"""Files with weights in other formats than safetensors (kubeflow SDK 0.5)."""

_NEWEST_REVISION = (
    "the Trainer's initializers always fetch the newest revision; to choose one, run InitializeDataset or "
    "InitializeModel with a workspace, and train with the same workspace"
)


_SET_FIELDS = ("storage_uri", "ignore_patterns", "endpoint", "region", "role_arn")  # with a variable of their names


class _TrainerInitializer(CredentialFreeSpec):
    """A source for the Trainer's own initializers.

    They always fetch the newest revision (Trainer 2.3, pkg/initializers/*/huggingface.py).
    """

    @model_validator(mode="before")
    @classmethod
    def _reject_revision(cls, value: Any) -> Any:
        revision = value.get("revision") if isinstance(value, Mapping) else getattr(value, "revision", None)
        if revision is not None:
            raise invalid_field("revision", revision, _NEWEST_REVISION)
        return value

    @model_validator(mode="after")
    def _reject_set_variables(self) -> Self:
        env: Mapping[str, Any] = getattr(self, "env", None) or {}
        for name in _SET_FIELDS:
            if name.upper() in env and getattr(self, name, None):
                raise invalid_field(f"env.{name.upper()}", REDACTED, f"the field {name} sets it: give only one of them")
        return self


class _HuggingFaceInitializer(_TrainerInitializer):
    """A repository on the Hugging Face Hub.

    Attributes:
        storage_uri: `hf://organization/name`; for a dataset, a path in the repository may follow.
        ignore_patterns: patterns of files that are not fetched.
        secret: Secret with the key `ACCESS_TOKEN`.
        env: further environment variables by name, as of a step.
    """

    storage_uri: str
    ignore_patterns: tuple[str, ...] | None = None
    secret: Secret | None = None
    env: Env | None = None


class _S3Initializer(_TrainerInitializer):
    """A path in an S3-compatible store.

    Attributes:
        storage_uri: `s3://bucket/path`.
        ignore_patterns: patterns of objects that are not fetched.
        endpoint: URL of the store, if it is not AWS.
        region: region of the bucket.
        role_arn: AWS role to assume.
        secret: Secret with the keys `ACCESS_KEY_ID` and `SECRET_ACCESS_KEY`.
        env: further environment variables by name, as of a step.
    """

    storage_uri: str
    ignore_patterns: tuple[str, ...] | None = None
    endpoint: Endpoint | None = None
    region: Region | None = None
    role_arn: str | None = None
    secret: Secret | None = None
    env: Env | None = None

    @field_validator("storage_uri")
    @classmethod
    def _validate_scheme(cls, uri: str) -> str:
        return check_uri(uri, "", ("s3",))


class HuggingFaceDatasetInitializer(_HuggingFaceInitializer):
    """Initializer that fetches a dataset from the Hugging Face Hub into `/workspace/dataset`."""

    @field_validator("storage_uri")
    @classmethod
    def _validate_repository(cls, uri: str) -> str:
        return _parse_hub_uri(uri, "dataset")


class HuggingFaceModelInitializer(_HuggingFaceInitializer):
    """Initializer that fetches a model from the Hugging Face Hub into `/workspace/model`.

    By default it fetches only weights in the safetensors format.
    """

    ignore_patterns: tuple[str, ...] | None = DEFAULT_MODEL_IGNORE_PATTERNS

    @field_validator("storage_uri")
    @classmethod
    def _validate_repository(cls, uri: str) -> str:
        return _parse_hub_uri(uri, "model")


class S3DatasetInitializer(_S3Initializer):
    """Initializer that fetches a dataset from an S3 store into `/workspace/dataset`.

    Any S3-compatible store works.
    """


class S3ModelInitializer(_S3Initializer):
    """Initializer that fetches a model from an S3 store into `/workspace/model`.

    Any S3-compatible store works. By default it fetches only weights in the safetensors format.
    """

    ignore_patterns: tuple[str, ...] | None = DEFAULT_MODEL_IGNORE_PATTERNS


class DataCacheInitializer(Spec):
    """Initializer that serves an Iceberg table from a distributed cache.

    Attributes:
        storage_uri: `cache://schema/table`.
        metadata_loc: location of the table's metadata file.
        num_data_nodes: number of the cache's nodes, more than one.
        head_cpu: CPU of the head.
        head_mem: memory of the head.
        worker_cpu: CPU of each worker.
        worker_mem: memory of each worker.
        iam_role: IAM role for reading the metadata.
        env: further environment variables by name, as of a step.
    """

    storage_uri: str
    metadata_loc: str
    num_data_nodes: int = Field(gt=1)
    head_cpu: str | None = None
    head_mem: str | None = None
    worker_cpu: str | None = None
    worker_mem: str | None = None
    iam_role: str | None = None
    env: Env | None = None

    @field_validator("storage_uri")
    @classmethod
    def _validate_storage_uri(cls, uri: str) -> str:
        if check_uri(uri, "", ("cache",)).removeprefix("cache://").count("/") != 1:
            raise invalid_field("", uri, "it must be cache://SCHEMA/TABLE")
        return uri


def _parse_hub_uri(uri: str, kind: Kind) -> str:
    """Return an address of the Hub in its shortest form; a revision is refused."""
    check_uri(uri, "", ("hf",))
    address = parse_source(uri, kind)
    if address.revision:
        raise invalid_field("", uri, _NEWEST_REVISION)
    return address.hub_uri


def _initializer_converter(hugging_face: type[Any], s3: type[Any], cache: type[Any] | None = None) -> Any:
    kinds = {"hf": hugging_face, "s3": s3, **({"cache": cache} if cache else {})}

    def convert(value: Any) -> Any:
        if isinstance(value, tuple(kinds.values())):
            return value
        uri = value.get("storage_uri") if isinstance(value, dict) else getattr(value, "storage_uri", None)
        if isinstance(value, str):
            uri, value = value, {"storage_uri": value}
        if not isinstance(uri, str):
            raise invalid_field("storage_uri", uri, "give an address, such as hf://ORGANIZATION/NAME")
        check_uri(uri, "storage_uri", tuple(kinds))
        return kinds[uri.partition("://")[0]].from_object(value)

    return convert


DatasetInitializer = Annotated[
    HuggingFaceDatasetInitializer | S3DatasetInitializer | DataCacheInitializer,
    BeforeValidator(_initializer_converter(HuggingFaceDatasetInitializer, S3DatasetInitializer, DataCacheInitializer)),
]
ModelInitializer = Annotated[
    HuggingFaceModelInitializer | S3ModelInitializer,
    BeforeValidator(_initializer_converter(HuggingFaceModelInitializer, S3ModelInitializer)),
]


class Initializer(Spec):
    """Initializers that run as Jobs of the same TrainJob, on runtimes that have such Jobs.

    Attributes:
        dataset: source of the dataset; a plain string stands for its URI.
        model: source of the model; a plain string stands for its URI.
    """

    dataset: DatasetInitializer | None = None
    model: ModelInitializer | None = None

"""Code of a project that travels to the pods of a TrainJob, so that no image has to be built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, InstanceOf, SerializeAsAny, field_validator, model_validator
from typing_extensions import Self

from trainjob.addresses import STORE_SCHEMES, check_uri
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.secrets import Endpoint, Region, Secret

MAX_CONFIG_MAP_BYTES = 1_000_000
"""Size of a compressed archive that fits into a ConfigMap, which may have 1 MiB (Kubernetes 1.36, MaxSecretSize)."""
Requirements = Literal["", "requirements.txt", "uv.lock"]
_ARCHIVE_NAME = re.compile(r"-([0-9a-f]{64})\.tar\.gz$")
_SCHEMES = (*(scheme for scheme in STORE_SCHEMES if scheme != "hf"), "https", "http")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# A DNS subdomain (Kubernetes 1.36, IsDNS1123Subdomain).
_CONFIG_MAP = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Code(Spec):
    """A project whose files travel to the pods; a plain string means its folder.

    The files are those that git knows or would add, without those that a file `.trainjobignore` names. Each pod unpacks
    them into a folder of its own, which is the working directory and part of `PYTHONPATH`.

    Attributes:
        path: folder of the project, or an archive that `trainjob pack` wrote. A relative path starts at the file of the
            request or of the DAG; in Python, at the working directory.
            It may also be the address of such an archive in a store, such as `s3://bucket/project-DIGEST.tar.gz`.
        requirements: file at the top of the folder whose packages uv installs in the pod: `uv.lock`, beside
            `pyproject.toml`, or `requirements.txt`. Packages that the image has in the chosen version are not installed
            again.
        secret: Secret for the store of an address, with the keys that `InitializeDataset` reads.
        endpoint: URL of an object store other than AWS, Google or Azure.
        region: region of an S3 bucket.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {"folder": "path", "directory": "path", "lock": "requirements"}

    path: str = Field(min_length=1)
    requirements: Requirements = ""
    secret: Secret | None = None
    endpoint: Endpoint | None = None
    region: Region | None = None

    @model_validator(mode="after")
    def _validate_store(self) -> Self:
        if self.digest is not None:
            check_uri(self.path, "path", _SCHEMES)
            if not self.digest:
                rule = "its name must end with -DIGEST.tar.gz, as `trainjob pack --output` names it"
                raise invalid_field("path", self.path, rule)
            return self
        for name in ("secret", "endpoint", "region"):
            if getattr(self, name) is not None:
                raise invalid_field(name, getattr(self, name), "it is for the address of an archive in a store")
        return self

    @property
    def digest(self) -> str | None:
        """SHA-256 in the name of an archive in a store; empty without one, None for a local path."""
        if "://" not in self.path:
            return None
        found = _ARCHIVE_NAME.search(self.path)
        return found[1] if found else ""


class PackedCode(Spec):
    """The code of a project as it travels: the result of `trainjob.project_code.pack`.

    Attributes:
        sha256: SHA-256 of the uncompressed archive, in hex digits; it identifies the code.
        requirements: see `Code`.
        commit: commit of git that was checked out; empty outside of a repository.
        branch: branch that was checked out; empty if there was none.
        modified: whether the files differ from those of the commit.
        files: number of files and links; 0 if it is not known.
        size: size of the compressed archive in bytes.
        archive: the compressed archive, in base64; empty if it is too large for a request.
        path: absolute path of the folder or archive, to read a large one again.
        uri: address of the archive in a store; empty if it travels.
        secret: see `Code`.
        endpoint: see `Code`.
        region: see `Code`.
        config_map: name of a ConfigMap that has the archive, of a namespace's administrator or an author; empty if the
            TrainJob gets its own.
    """

    sha256: str
    requirements: Requirements = ""
    commit: str = ""
    branch: str = ""
    modified: bool = False
    files: int = Field(default=0, ge=0)
    size: int = Field(default=0, ge=0)
    archive: str = Field(default="", repr=False)
    path: str = ""
    uri: str = ""
    secret: Secret | None = None
    endpoint: Endpoint | None = None
    region: Region | None = None
    config_map: str = ""

    @field_validator("sha256")
    @classmethod
    def _validate_sha256(cls, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise invalid_field("", digest, "it must be a SHA-256 in 64 hex digits, as `trainjob pack` prints it")
        return digest

    @field_validator("config_map")
    @classmethod
    def _validate_config_map(cls, name: str) -> str:
        if name and not _CONFIG_MAP.fullmatch(name):
            raise invalid_field("", name, "it must be the name of a ConfigMap: lower case letters, digits, - and .")
        return name


class ChangingCode(PackedCode):
    """The code of a project that `trainjob dev` changes while the pods run.

    Attributes:
        idle_seconds: seconds without a run and without a change after which the pods end.
    """

    idle_seconds: float = Field(gt=0)


def _to_code(value: Any) -> Any:
    """Return the code from a path, a dict of the fields of one of the classes, or an object."""
    if isinstance(value, Code | PackedCode):
        return value
    if isinstance(value, str):
        return Code(path=value)
    if not isinstance(value, Mapping):
        raise invalid_field("", value, 'give the folder of the project, such as ".", or a Code')
    return (PackedCode if "sha256" in value else Code).from_object(value)


CodeField = Annotated[SerializeAsAny[InstanceOf[Code] | InstanceOf[PackedCode]], BeforeValidator(_to_code)]

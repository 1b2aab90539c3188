"""Addresses of files in stores, in one place for requests and for the programs in pods.

| Address | Store |
|---|---|
| `hf://organization/name[@revision][/path]` | a repository on the Hugging Face Hub |
| `s3://bucket/path` | S3, or a compatible store |
| `gs://bucket/path` | Google Cloud Storage |
| `az://container/path` | Azure Blob Storage |
| `abfs[s]://container[@account.dfs.core.windows.net]/path` | the same, as in Hadoop and adlfs |

A step can also fetch from these, but not export to them:

| Address | Files |
|---|---|
| `https://host/path/file[#sha256=HEX]` | one file of a web server |
| `pvc://claim[/path]` | a PersistentVolumeClaim, as in KServe |
| `oci://registry/repository[:tag]`, `oci://registry/repository@sha256:digest` | an OCI image |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from trainjob.credentials import redact_credentials
from trainjob.errors import InvalidSpec, Problem

__all__ = [
    "AZURE_SCHEMES",
    "CLAIM_NAME",
    "MOUNTED_SCHEMES",
    "REFERENCE_ADVICE",
    "STORE_SCHEMES",
    "Kind",
    "StoreAddress",
    "check_uri",
    "parse_destination",
    "parse_source",
]

AZURE_SCHEMES = ("az", "abfs", "abfss")
"""Schemes of Azure Blob Storage."""
STORE_SCHEMES = ("hf", "s3", "gs", *AZURE_SCHEMES)
"""Schemes of the addresses from which a step can fetch, and to which it can export."""
MOUNTED_SCHEMES = ("pvc", "oci")
"""Schemes of the addresses whose files Kubernetes mounts into the pod of a fetch."""
_SOURCE_SCHEMES = (*STORE_SCHEMES, "https", "http", *MOUNTED_SCHEMES)

CLAIM_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""Name of a PersistentVolumeClaim."""

Kind = Literal["dataset", "model"]

# Hadoop's form (hadoop-azure 3.4, ABFS), also for Azure's sovereign clouds.
_AZURE_ACCOUNT = re.compile(
    r"(?P<container>[$a-z0-9-]+)@(?P<account>[a-z0-9]{3,24})\.(?:dfs|blob)\.(?P<cloud>core\.[a-z.]+)"
)
# Rules of huggingface_hub 2.4, utils/_validators.py, validate_repo_id.
_REPOSITORY = re.compile(r"(?!.*(--|\.\.))(\w[\w.-]*(?<![.-])/)?\w[\w.-]*(?<![.-])(?<!\.git)", re.ASCII)
_MAX_REPOSITORY_LENGTH = 96
# The form of `HfFileSystem` (huggingface_hub 2.4, hf_file_system.py).
_HUB = re.compile(
    r"(?:(?P<kind>dataset|model|space)s/(?=[^/]+/))?(?P<repository>[^/@]+(?:/[^/@]+)?)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/@]+|[^/@]+))?(?P<path>(?:/.*)?)"
)
_HUB_FORM = "hf://ORGANIZATION/NAME"
_REPOSITORY_RULE = "names have letters, digits, '-', '_' and '.', at most 96 characters, and no '--' or '..'"
_WITH_REVISION = "write a revision as hf://ORGANIZATION/NAME@REVISION"
_PAGE_PATH = re.compile(r"/(tree|blob|resolve)/.*")  # of the Hub's web pages
_FILE_DIGEST = re.compile(r"(?:sha256=(?P<sha256>[0-9a-f]{64}))?")  # of a file, as pip has it
# Rules of distribution/reference 0.6 (regexp.go), with a registry.
_IMAGE = re.compile(
    r"[\w.-]+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+(?::\w[\w.-]{0,127}|@sha256:[0-9a-f]{64})?",
    re.ASCII,
)

_AZURE_FORM = "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
_ONLY_FETCHED = "only InitializeDataset and InitializeModel read"
_OTHER_ADDRESSES = {
    r"s3[an]://.*": "write it as s3://BUCKET/PATH",
    r"gcs://.*": "write it as gs://BUCKET/PATH",
    r"https?://(www\.)?(huggingface\.co|hf\.co)": f"write it as {_HUB_FORM}",
    r"wasbs?://.*|https?://.*\.(blob|dfs)\.core\..*": _AZURE_FORM,
    r"oci://.*": f"{_ONLY_FETCHED} an image: use a bucket, the Hub, or the workspace",
    r"hdfs://.*": "HDFS is not supported: use a bucket, the Hub, or the workspace",
    r"(ms|modelscope)://.*": "ModelScope is not supported: use a bucket, the Hub, or the workspace",
    r"pvc://.*": f"{_ONLY_FETCHED} a PersistentVolumeClaim: give it as the workspace of the steps",
}
"""Advice for known addresses of other forms, by a pattern of scheme and host."""

REFERENCE_ADVICE = (
    "put it into a Secret (kubectl create secret generic NAME --from-literal=KEY=...) and give secret='NAME'"
)
"""Advice for a credential in a request."""

_HIDDEN = "***"
_MAX_SHOWN_LENGTH = 200  # characters


@dataclass(frozen=True)
class StoreAddress:
    """The parts of an address.

    Attributes:
        scheme: `hf`, `s3`, `gs`, `az`, `https`, `http`, `pvc` or `oci`.
        bucket: bucket or container; of the Hub, the repository's `organization/name`; of a web server, its host; name
            of a PersistentVolumeClaim; reference of an image.
        path: path in it, without slashes at its ends; may be empty.
        revision: branch, tag or commit in an address of the Hub; SHA-256 of a web server's file; may be empty.
        account: name of Azure's storage account, if the address has it.
        account_url: URL of that account.
    """

    scheme: str
    bucket: str
    path: str = ""
    revision: str = ""
    account: str = ""
    account_url: str = ""

    @property
    def hub_uri(self) -> str:
        """An address of the Hub in its shortest form, without the revision."""
        return f"hf://{self.bucket}/{self.path}".rstrip("/")


def parse_source(uri: str, kind: Kind, field: str = "") -> StoreAddress:
    """Return the parts of an address from which a step fetches.

    On the Hub a model is a whole repository, which may have no organization, such as `hf://gpt2`. A dataset may be in a
    folder of a repository with an organization (Trainer 2.3, pkg/initializers/*/huggingface.py).

    Args:
        uri: the address.
        kind: what is at the address.
        field: name of the field, for the error.

    Raises:
        InvalidSpec: the address has no such form, or contains a credential.
    """
    check_uri(uri, field, _SOURCE_SCHEMES)
    scheme, _, rest = uri.partition("://")
    if scheme in ("https", "http"):
        return _parse_file_address(uri, kind, field)
    if scheme == "pvc":
        return _parse_claim_address(uri, rest, field)
    if scheme == "oci":
        return _parse_image_address(uri, rest, field)
    address = _parse_store_address(uri, kind, field)
    if address.scheme != "hf":
        return address
    if kind == "model" and address.path:
        raise _refuse(uri, f"it must be {_HUB_FORM}, without a path", field)
    if kind == "dataset" and "/" not in address.bucket:
        raise _refuse(uri, f"it must be {_HUB_FORM} or {_HUB_FORM}/PATH", field)
    return address


def parse_destination(uri: str, field: str = "") -> StoreAddress:
    """Return the parts of an address to which a step exports a model.

    Args:
        uri: the address.
        field: name of the field, for the error.

    Raises:
        InvalidSpec: the address has no such form, or contains a credential.
    """
    check_uri(uri, field, STORE_SCHEMES)
    address = _parse_store_address(uri, "model", field)
    if address.scheme == "hf" and "/" not in address.bucket:
        raise _refuse(uri, f"it must be {_HUB_FORM}, or {_HUB_FORM}@REVISION/FOLDER", field)
    return address


def check_uri(uri: str, field: str, schemes: Sequence[str]) -> str:
    """Return a URI if it has one of these schemes and contains no credentials.

    Args:
        uri: the URI.
        field: name of the field, for the error.
        schemes: the allowed schemes.

    Raises:
        InvalidSpec: the URI has no scheme or another one, nothing follows the scheme, it contains `user:password@`, or
            it is malformed.
    """
    scheme, separator, rest = uri.partition("://")
    host = (rest or uri).partition("/")[0]
    if scheme not in schemes and (advice := _find_advice(f"{scheme}://{host}")):
        raise _refuse(_HIDDEN if "@" in host else uri, advice, field)
    if "@" in host and not (scheme in AZURE_SCHEMES and _AZURE_ACCOUNT.fullmatch(host)):
        rule = f"it must not contain a user name or password; {REFERENCE_ADVICE}"
        raise _refuse(_HIDDEN, f"{_AZURE_FORM}; {rule}" if scheme in AZURE_SCHEMES else rule, field)
    allowed = " or ".join(f"{name}://…" for name in schemes)
    if not separator:
        advice = f"; did you mean {schemes[0]}://{uri}?" if re.fullmatch(r"[\w.-]+/[\w.-]+(/.*)?", uri) else ""
        raise _refuse(uri, f"it must be a URI: {allowed}{advice}", field)
    if scheme not in schemes:
        raise _refuse(uri, f"allowed are {allowed}", field)
    if rest.startswith("/") or not rest:
        raise _refuse(uri, "nothing follows the scheme", field)
    if ".." in rest.split("/") or not uri.isprintable() or not _is_parseable(uri):
        rule = "it must not contain '..' or control characters, and brackets only around IPv6"
        raise _refuse(uri, rule, field)
    return uri


def _parse_store_address(uri: str, kind: Kind, field: str) -> StoreAddress:
    scheme, _, rest = uri.partition("://")
    if scheme == "hf":
        return _parse_hub_address(uri, kind, field)
    host, _, path = rest.partition("/")
    if scheme not in AZURE_SCHEMES:
        return StoreAddress(scheme, host, path.strip("/"))
    found = _AZURE_ACCOUNT.fullmatch(host)
    if not found:
        return StoreAddress("az", host, path.strip("/"))
    url = f"https://{found['account']}.blob.{found['cloud']}"
    return StoreAddress("az", found["container"], path.strip("/"), "", found["account"], url)


def _parse_hub_address(uri: str, kind: Kind, field: str) -> StoreAddress:
    if "?" in uri:
        raise _refuse(uri, f"{_REPOSITORY_RULE}; {_WITH_REVISION}", field)
    found = _HUB.fullmatch(uri.removeprefix("hf://"))
    if not found:
        raise _refuse(uri, f"it must be {_HUB_FORM}", field)
    if found["kind"] not in (None, kind):
        raise _refuse(uri, f"it must be the repository of a {kind}, {_HUB_FORM}", field)
    repository = found["repository"]
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _MAX_REPOSITORY_LENGTH:
        raise _refuse(uri, _REPOSITORY_RULE, field)
    if _PAGE_PATH.fullmatch(found["path"]):
        raise _refuse(uri, _WITH_REVISION, field)
    revision = unquote(found["revision"] or "")  # refs/pr/1 is also written refs%2Fpr%2F1
    return StoreAddress("hf", repository, found["path"].strip("/"), revision)


def _parse_file_address(uri: str, kind: Kind, field: str) -> StoreAddress:
    """Return the parts of an address of one file of a web server.

    Plain HTTP is accepted only with a digest, because the content can be changed on its way.
    """
    parts = urlsplit(uri)
    digest = _FILE_DIGEST.fullmatch(parts.fragment.lower())
    if advice := _find_advice(f"{parts.scheme}://{parts.netloc}"):
        raise _refuse(uri, advice, field)
    if redact_credentials(uri, {}) != uri:
        rule = "it must not be a signed URL, which is a credential and expires: write the address in its store, such as"
        raise _refuse(uri, f"{rule} s3://BUCKET/PATH, or for a Bearer token {REFERENCE_ADVICE}", field)
    if kind == "model":
        rule = "a model has several files, and a web server has no list of them: use hf://, s3://, oci:// or pvc://"
        raise _refuse(uri, rule, field)
    if not parts.path.rpartition("/")[2]:
        raise _refuse(uri, "it must name one file: https://HOST/PATH/FILE", field)
    if not digest:
        raise _refuse(uri, "only #sha256=HEX, with 64 digits, may follow the path", field)
    if parts.scheme == "http" and not digest["sha256"]:
        raise _refuse(uri, "write it as https://, or with #sha256=HEX at its end, by which the file is checked", field)
    if not uri.isascii() or " " in uri:
        raise _refuse(uri, "write blanks and letters outside ASCII percent-encoded, such as %20", field)
    return StoreAddress(parts.scheme, parts.netloc, parts.path.strip("/"), digest["sha256"] or "")


def _parse_claim_address(uri: str, rest: str, field: str) -> StoreAddress:
    claim, _, path = rest.partition("/")
    if not CLAIM_NAME.fullmatch(claim):
        raise _refuse(uri, "it must be pvc://CLAIM/PATH, with the name of a PersistentVolumeClaim", field)
    return StoreAddress("pvc", claim, path.strip("/"))


def _parse_image_address(uri: str, reference: str, field: str) -> StoreAddress:
    if not _IMAGE.fullmatch(reference):
        raise _refuse(uri, "it must be oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST", field)
    return StoreAddress("oci", reference)


def _find_advice(address: str) -> str:
    """Return the advice for a known kind of address; empty for an unknown one."""
    return next((advice for pattern, advice in _OTHER_ADDRESSES.items() if re.fullmatch(pattern, address)), "")


def _is_parseable(uri: str) -> bool:
    try:
        return bool(urlsplit(uri))
    except ValueError:
        return False


def _refuse(uri: str, rule: str, field: str) -> InvalidSpec:
    shown = uri if uri == _HIDDEN else redact_credentials(repr(uri))
    return InvalidSpec(Problem(field, shown[:_MAX_SHOWN_LENGTH], rule))

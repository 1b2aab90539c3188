"""Destinations of an export, by the form of their address.

| Address | Destination |
|---|---|
| `/folder`, `file:///folder` | a folder, such as one on the workspace's volume |
| `s3://bucket/prefix` | an S3-compatible object store |
| `gs://bucket/prefix` | Google Cloud Storage |
| `hf://org/name[@revision][/folder]` | a repository on the Hugging Face hub |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainjob.errors import InvalidSpec, Problem
from trainjob.programs.export.folder import FolderTarget
from trainjob.programs.export.hub import HubTarget
from trainjob.programs.export.objects import ObjectTarget
from trainjob.programs.fetch.bucket import SCHEMES, create_bucket

__all__ = ["Access", "Target", "create_target"]

_HUB = re.compile(r"(?:models/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<folder>.+))?")
_FORMS = "/folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix or hf://org/name[@revision][/folder]"

Target = FolderTarget | ObjectTarget | HubTarget


@dataclass(frozen=True)
class Access:
    """Endpoint, region and credentials of a destination.

    Attributes:
        endpoint: address of the object store or hub; empty means the usual one.
        region: region of an S3 bucket; empty means AWS_REGION.
        environment: variables with the credentials (`trainjob.programs.fetch.credentials`), and those that the
            libraries read themselves.
    """

    endpoint: str = ""
    region: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def create_target(address: str, access: Access) -> Target:
    """Return the target to which an address exports.

    Raises:
        InvalidSpec: the address has none of the forms above.
    """
    if address.startswith("/"):
        return FolderTarget(Path(address))
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets, which only an IPv6 address may have
        raise InvalidSpec(Problem("destination", repr(address), f"give {_FORMS}")) from None
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FolderTarget(Path(unquote(parts.path)))
    if "@" in parts.netloc and parts.scheme != "hf":
        rule = "it must not contain a user name or password: put them into the step's secret"
        raise InvalidSpec(Problem("destination", "***", rule))
    if parts.scheme in SCHEMES and parts.netloc:
        bucket = create_bucket(parts.scheme, parts.netloc, access.environment, access.endpoint, access.region)
        return ObjectTarget(bucket, address.split("://", 1)[1].partition("/")[2].strip("/"))
    match = _HUB.fullmatch(address.removeprefix("hf://").rstrip("/")) if parts.scheme == "hf" else None
    if match and not match["repo"].startswith(("datasets/", "spaces/")):
        token = access.environment.get("ACCESS_TOKEN") or access.environment.get("HF_TOKEN") or ""
        revision = unquote(match["revision"] or "main")  # refs/pr/1 is written refs%2Fpr%2F1
        return HubTarget(match["repo"], revision, (match["folder"] or "").strip("/"), access.endpoint, token)
    raise InvalidSpec(Problem("destination", repr(address), f"give {_FORMS}"))

"""Where an export can go, by the form of its address.

| Address | Goes to |
|---|---|
| `/folder`, `file:///folder` | a folder, such as one on the workspace's volume |
| `s3://bucket/prefix` | an S3-compatible object store |
| `hf://org/name[@revision][/folder]` | a repository on the Hugging Face hub |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainjob.errors import InvalidSpec, Problem
from trainjob.export.folder import FolderTarget
from trainjob.export.hub import HubTarget
from trainjob.export.objects import ObjectTarget

__all__ = ["CREDENTIAL_NAMES", "Access", "Target", "destination_of"]

CREDENTIAL_NAMES = ("ACCESS_TOKEN", "HF_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
_HUB = re.compile(r"(?:models/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<folder>.+))?")
_FORMS = "/folder, file:///folder, s3://bucket/prefix or hf://org/name[@revision][/folder]"

Target = FolderTarget | ObjectTarget | HubTarget


@dataclass(frozen=True)
class Access:
    """How to reach a destination.

    Attributes:
        endpoint: address of the object store or hub; empty for the usual one.
        region: of the object store; empty to take AWS_REGION.
        environment: where the credentials are (`CREDENTIAL_NAMES`), and what the libraries read themselves.
    """

    endpoint: str = ""
    region: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def destination_of(address: str, access: Access) -> Target:
    """Reads an address.

    Raises:
        InvalidSpec: it has none of the forms above.
    """
    if address.startswith("/"):
        return FolderTarget(Path(address))
    parts = urlsplit(address)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FolderTarget(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return _objects(parts.netloc, address.split("://", 1)[1].partition("/")[2].strip("/"), access)
    match = _HUB.fullmatch(address.removeprefix("hf://").rstrip("/")) if parts.scheme == "hf" else None
    if match and not match["repo"].startswith(("datasets/", "spaces/")):
        token = access.environment.get("ACCESS_TOKEN") or access.environment.get("HF_TOKEN") or ""
        revision = unquote(match["revision"] or "main")  # refs/pr/1 is written refs%2Fpr%2F1
        return HubTarget(match["repo"], revision, (match["folder"] or "").strip("/"), access.endpoint, token)
    raise InvalidSpec(Problem("destination", repr(address), f"give {_FORMS}"))


def _objects(bucket: str, prefix: str, access: Access) -> ObjectTarget:
    env = access.environment
    region = access.region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    options = {
        "bucket": bucket,
        "endpoint": access.endpoint,
        # "auto" as upstream's initializers (Trainer 2.3 pkg/initializers/utils/opendal.py); AWS wants a real one.
        "region": region or ("auto" if access.endpoint else "us-east-1"),
        "access_key_id": env.get("ACCESS_KEY_ID", ""),
        "secret_access_key": env.get("SECRET_ACCESS_KEY", ""),
        "session_token": env.get("SESSION_TOKEN", ""),
    }
    return ObjectTarget(bucket, prefix, {name: value for name, value in options.items() if value})

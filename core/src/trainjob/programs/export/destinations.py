"""Destinations of an export: `/folder`, `file:///folder`, or an address of [trainjob.addresses][]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from trainjob.addresses import parse_destination
from trainjob.programs.export.folder import FolderTarget
from trainjob.programs.export.hub import HubTarget
from trainjob.programs.export.objects import ObjectTarget
from trainjob.programs.fetch.bucket import create_bucket

__all__ = ["Access", "Target", "create_target"]

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
    if address.startswith("file:///"):
        return FolderTarget(Path(unquote(address.removeprefix("file://"))))
    place = parse_destination(address, "destination")
    if place.scheme == "hf":
        token = access.environment.get("ACCESS_TOKEN") or access.environment.get("HF_TOKEN") or ""
        return HubTarget(place.bucket, place.revision or "main", place.path, access.endpoint, token)
    return ObjectTarget(create_bucket(place, access.environment, access.endpoint, access.region), place.path)

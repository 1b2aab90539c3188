"""What an initializer is asked for, in its environment.

Source: Trainer 2.3 `pkg/initializers/utils/utils.py`, get_config_from_env: upper-cased field names; empty means not
given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["DownloadFailed", "Request", "request_from"]


class DownloadFailed(Exception):
    """Why nothing was downloaded, as one sentence."""


@dataclass(frozen=True)
class Request:
    """What to download, and where to.

    Attributes:
        kind: `dataset` or `model`; also the name of the folder in the workspace.
        uri: STORAGE_URI.
        target: the folder.
        ignore_patterns: IGNORE_PATTERNS, shell patterns; none unless given.
        options: the other variables that were given, by their names: ACCESS_TOKEN, ENDPOINT, ACCESS_KEY_ID, …
    """

    kind: str
    uri: str
    target: Path
    ignore_patterns: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)

    @property
    def scheme(self) -> str:
        """`hf` or `s3`."""
        return urlsplit(self.uri).scheme

    @property
    def location(self) -> str:
        """The address without its scheme."""
        return self.uri.split("://", 1)[1]


_OPTIONS = ("ACCESS_TOKEN", "ENDPOINT", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ROLE_ARN")


def request_from(environment: Mapping[str, str], kind: str) -> Request:
    """Reads the environment.

    The workspace is `/workspace` as in upstream's images, unless WORKSPACE names its folder on this machine.

    Raises:
        DownloadFailed: STORAGE_URI is missing or has no scheme.
    """
    uri = environment.get("STORAGE_URI", "").strip()
    if not uri:
        raise DownloadFailed("STORAGE_URI is not set")
    if "://" not in uri:
        raise DownloadFailed(f"STORAGE_URI {uri!r} has no scheme; hf://org/name or s3://bucket/prefix is expected")
    patterns = (pattern.strip() for pattern in environment.get("IGNORE_PATTERNS", "").split(","))
    return Request(
        kind=kind,
        uri=uri,
        target=Path(environment.get("WORKSPACE") or "/workspace") / kind,
        ignore_patterns=tuple(pattern for pattern in patterns if pattern),
        options={name: environment[name] for name in _OPTIONS if environment.get(name)},
    )

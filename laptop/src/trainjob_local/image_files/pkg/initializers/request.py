"""The request of an initializer, read from its environment variables.

Source: Trainer 2.3 `pkg/initializers/utils/utils.py`, get_config_from_env. The variables are field names in upper case;
an empty variable counts as not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["DownloadFailed", "Request", "parse_request"]


class DownloadFailed(Exception):
    """Error for a download that failed; the message is one sentence with the reason."""


@dataclass(frozen=True)
class Request:
    """The source and the target of a download.

    Attributes:
        kind: `dataset` or `model`; also the name of the folder in the workspace.
        uri: address of the source, from STORAGE_URI.
        target: folder for the files.
        ignore_patterns: shell patterns of files to skip, from IGNORE_PATTERNS; empty if it is not given.
        options: other given variables by name: ACCESS_TOKEN, ENDPOINT, ACCESS_KEY_ID, SECRET_ACCESS_KEY, REGION and
            ROLE_ARN.
    """

    kind: str
    uri: str
    target: Path
    ignore_patterns: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)

    @property
    def scheme(self) -> str:
        """Scheme of the address, such as `hf` or `s3`."""
        return urlsplit(self.uri).scheme

    @property
    def location(self) -> str:
        """Address without its scheme."""
        return self.uri.split("://", 1)[1]


_OPTIONS = ("ACCESS_TOKEN", "ENDPOINT", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ROLE_ARN")


def parse_request(environment: Mapping[str, str], kind: str) -> Request:
    """Return the request in the environment variables.

    The workspace is `/workspace`, as in the Trainer's images, unless WORKSPACE contains its path on this machine.

    Args:
        environment: the environment variables.
        kind: `dataset` or `model`.

    Raises:
        DownloadFailed: STORAGE_URI is missing or has no scheme.
    """
    uri = environment.get("STORAGE_URI", "").strip()
    if not uri:
        raise DownloadFailed("STORAGE_URI is not set")
    if "://" not in uri:
        raise DownloadFailed(f"STORAGE_URI {uri!r} has no scheme; use hf://org/name or s3://bucket/prefix")
    patterns = (pattern.strip() for pattern in environment.get("IGNORE_PATTERNS", "").split(","))
    return Request(
        kind=kind,
        uri=uri,
        target=Path(environment.get("WORKSPACE") or "/workspace") / kind,
        ignore_patterns=tuple(pattern for pattern in patterns if pattern),
        options={name: environment[name] for name in _OPTIONS if environment.get(name)},
    )

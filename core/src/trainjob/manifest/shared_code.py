"""ConfigMap with the code of a project that TrainJobs share: its author creates it before them."""

from __future__ import annotations

import base64
from typing import Any

from trainjob.manifest.code import build_config_map
from trainjob.spec import PackedCode
from trainjob.spec.base import invalid_field
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES

_DIGITS = 40  # of the digest in a name; as many as a commit of git has
_GZIP_WITH_COMMENT = b"\x1f\x8b\x08\x10"  # RFC 1952: deflate, and only the flag FCOMMENT
_GZIP_HEADER_BYTES = 10


def name_shared_config_map(sha256: str) -> str:
    """Return the name of the ConfigMap that TrainJobs with this code share."""
    return f"trainjob-code-{sha256[:_DIGITS]}"


def describe_creation(namespace: str = "NAMESPACE", folder: str = "DIR") -> str:
    """Return the command that creates the ConfigMap from the folder of the project."""
    return f"trainjob pack {folder} --config-map | kubectl apply --server-side -n {namespace} -f -"


def build_shared_config_map(code: PackedCode) -> dict[str, Any]:
    """Return the ConfigMap that TrainJobs with this code share, for any namespace.

    Its annotation has the commit of the code. Its data do not, because the ConfigMap is immutable and the same files of
    another commit have the same name.

    Args:
        code: what `trainjob.project_code.pack` returned.

    Raises:
        InvalidSpec: the archive is too large.
    """
    check_shared_size(code)
    config_map = build_config_map(code, name_shared_config_map(code.sha256), "")
    config_map["metadata"].pop("namespace")
    return {**config_map, "binaryData": {key: remove_origin(text) for key, text in config_map["binaryData"].items()}}


def check_shared_size(code: PackedCode) -> None:
    """Refuse code that does not fit into a ConfigMap.

    Raises:
        InvalidSpec: the archive is too large.
    """
    if code.size > MAX_CONFIG_MAP_BYTES:
        rule = (
            f"a ConfigMap can have {MAX_CONFIG_MAP_BYTES} bytes of it: name data and other files that the training "
            "does not need in .trainjobignore, or build an image with the project"
        )
        raise invalid_field("code.path", f"{code.size} bytes, compressed", rule)


def remove_origin(archive: str) -> str:
    """Return an archive of a project without its commit.

    The same files of another commit then have the same bytes.

    Args:
        archive: the compressed archive, in base64. The comment of its gzip header has the commit.
    """
    data = base64.b64decode(archive)
    if not data.startswith(_GZIP_WITH_COMMENT):
        return archive
    contents = data[data.index(b"\0", _GZIP_HEADER_BYTES) + 1 :]
    header = _GZIP_WITH_COMMENT[:3] + b"\0" + data[len(_GZIP_WITH_COMMENT) : _GZIP_HEADER_BYTES]
    return base64.b64encode(header + contents).decode()

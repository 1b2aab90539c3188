"""The settings of a kubelet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainjob_local.images import Image, find_image
from trainjob_local.kubelet.isolation import Isolation

__all__ = ["KubeletSettings"]


@dataclass(frozen=True)
class KubeletSettings:
    """The settings of the kubelet of one Node.

    Attributes:
        state: folder of the pods' files, their logs and the volumes.
        node: name of the Node.
        port: port of the log endpoint, reported in the Node's status; 0 if logs are read in-process.
        cpus, memory, gpus: resources that the Node reports (cores, quantity, `nvidia.com/gpu`).
        backoff, backoff_max: first and longest delay before a container's restart, in seconds. A real kubelet has 10
            and 300.
        images: local environments that replace images; the first match applies.
        missing_image: regular expression of images that cannot be pulled.
        path: folders at the start of every container's PATH.
        pod_env: environment of every container; the image's and the pod's variables override it.
        isolation: gives containers their own mounts and process IDs; None if they share this machine's.
    """

    state: Path
    node: str = "process-node"
    port: int = 0
    cpus: int = 64
    memory: str = "256Gi"
    gpus: int = 8
    backoff: float = 1.0
    backoff_max: float = 4.0
    images: tuple[Image, ...] = ()
    missing_image: str = "does-not-exist"
    path: tuple[str, ...] = ()
    pod_env: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None

    def image(self, name: str) -> Image:
        """Return the local environment that replaces an image.

        For an image without a description, the result has no settings of its own.
        """
        return find_image(self.images, name)

    def pullable(self, name: str) -> bool:
        """Return whether an image can be pulled."""
        return re.search(self.missing_image, name) is None

    def pod_folder(self, uid: str) -> Path:
        """Return the folder of one pod's files."""
        return self.state / "pods" / uid

    def volume_folder(self, namespace: str, claim: str, uid: str) -> Path:
        """Return the folder that backs the volume of a claim."""
        return self.state / "volumes" / f"{namespace}_{claim}_{uid[:8]}"

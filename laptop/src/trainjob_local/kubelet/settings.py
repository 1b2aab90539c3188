"""What a kubelet is told at its start."""

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
    """How one Node of processes behaves.

    Attributes:
        state: folder of the pods' files, their logs and the volumes.
        node: name of the Node.
        port: port of the log endpoint, told in the Node's status; 0 where logs are asked in-process.
        cpus, memory, gpus: what the Node claims to have (cores, quantity, `nvidia.com/gpu`).
        backoff, backoff_max: first and longest pause before a container's restart, seconds. A real kubelet has 10 and
            300.
        images: which local environment stands for which image; the first match counts.
        missing_image: regular expression of images that cannot be pulled.
        path: folders put first in every container's PATH.
        pod_env: environment of every container, below the image's and the pod's own.
        isolation: gives containers mounts and process IDs of their own; None leaves them this machine's.
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
        """Finds what stands for an image; an image nobody described has nothing of its own."""
        return find_image(self.images, name)

    def pullable(self, name: str) -> bool:
        """Tells whether an image can be had."""
        return re.search(self.missing_image, name) is None

    def pod_folder(self, uid: str) -> Path:
        """Folder of one pod's files."""
        return self.state / "pods" / uid

    def volume_folder(self, namespace: str, claim: str, uid: str) -> Path:
        """Folder that stands for the volume of a claim."""
        return self.state / "volumes" / f"{namespace}_{claim}_{uid[:8]}"

"""Settings of a laptop cluster, which `LocalCluster` sends to its process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainjob_local.images import Image, images_from_json, images_to_json

__all__ = ["ClusterSettings"]


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of a laptop cluster.

    Attributes:
        state: folder of the cluster's objects, claims, logs and kubeconfig.
        temporary: whether the cluster removes the folder when it ends.
        port: TCP port on 127.0.0.1; 0 takes the earlier port of the state folder, or a free one.
        environments: folders of local environments by name, such as `initializer` and `torchtune`.
        pod_env: environment variables of every pod, such as `HF_ENDPOINT`.
        images: descriptions of images, which take precedence over the default ones.
        cpus: number of CPUs in the capacity of the Node.
        memory: memory in the capacity of the Node, as a quantity.
        gpus: number of `nvidia.com/gpu` in the capacity of the Node.
        backoff: first delay before a failed container or pod restarts, in seconds.
        backoff_max: maximum of this delay, in seconds.
        history: number of changes of each resource that are kept for watches.
    """

    state: Path
    temporary: bool = False
    port: int = 0
    environments: Mapping[str, Path] = field(default_factory=dict)
    pod_env: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    cpus: int = 64
    memory: str = "256Gi"
    gpus: int = 8
    backoff: float = 1.0
    backoff_max: float = 4.0
    history: int = 1000

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig file."""
        return self.state / "kubeconfig"

    @property
    def ca_file(self) -> Path:
        """Path of the certificate of the API server's certificate authority."""
        return self.state / "ca.crt"

    def to_json(self) -> str:
        """Return the settings as JSON in one line."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        environments = {name: str(folder) for name, folder in self.environments.items()}
        images = json.loads(images_to_json(self.images))
        return json.dumps({**plain, "state": str(self.state), "environments": environments, "images": images})

    @classmethod
    def from_json(cls, text: str) -> ClusterSettings:
        """Return the settings in a JSON text of `to_json`."""
        plain = json.loads(text)
        environments = {name: Path(folder) for name, folder in plain["environments"].items()}
        images = images_from_json(json.dumps(plain["images"]))
        return cls(**{**plain, "state": Path(plain["state"]), "environments": environments, "images": images})

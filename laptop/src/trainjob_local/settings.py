"""How a laptop cluster is set up; travels from `LocalCluster` to its process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainjob_local.images import Image, images_from_json, images_to_json

__all__ = ["ClusterSettings"]


@dataclass(frozen=True)
class ClusterSettings:
    """How a laptop cluster is set up.

    Attributes:
        state: folder of everything the cluster keeps: objects, claims, logs, kubeconfig.
        temporary: whether the folder goes with the cluster.
        port: TCP port on 127.0.0.1; 0 takes the one the state folder had, or a free one.
        environments: local environments by name: `initializer`, `torchtune`.
        pod_env: environment of every pod, such as `HF_ENDPOINT`.
        images: descriptions of images, looked at before the usual ones.
        cpus, memory, gpus: what the Node claims to have.
        backoff, backoff_max: first and longest pause before a container or pod starts anew, seconds.
        history: how many changes of each resource a watch can go back.
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
        """Where the kubeconfig is written."""
        return self.state / "kubeconfig"

    def to_json(self) -> str:
        """Writes the settings as one line."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        environments = {name: str(folder) for name, folder in self.environments.items()}
        images = json.loads(images_to_json(self.images))
        return json.dumps({**plain, "state": str(self.state), "environments": environments, "images": images})

    @classmethod
    def from_json(cls, text: str) -> ClusterSettings:
        """Reads what `to_json` wrote."""
        plain = json.loads(text)
        environments = {name: Path(folder) for name, folder in plain["environments"].items()}
        images = images_from_json(json.dumps(plain["images"]))
        return cls(**{**plain, "state": Path(plain["state"]), "environments": environments, "images": images})

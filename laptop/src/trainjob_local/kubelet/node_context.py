"""The node's settings and services, which all its pods share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainjob_local.events import EventRecorder
from trainjob_local.images import Image
from trainjob_local.kubelet.image_puller import ImagePuller
from trainjob_local.kubelet.master_ports import MasterPorts
from trainjob_local.kubelet.processes import ProcessManager
from trainjob_local.kubelet.settings import KubeletSettings
from trainjob_local.objects import ObjectApi

__all__ = ["NodeContext"]


@dataclass(frozen=True)
class NodeContext:
    """The settings and services of a node that its pods use.

    Attributes:
        settings: the settings of the kubelet.
        api: client of the API server.
        events: recorder of the kubelet's events.
        processes: manager that starts the container processes.
        image_puller: creator of the environments that replace images.
        master_ports: the ports of the JobSets with pods on this node.
    """

    settings: KubeletSettings
    api: ObjectApi
    events: EventRecorder
    processes: ProcessManager
    image_puller: ImagePuller
    master_ports: MasterPorts

    def base_environment(self, image: Image, *, home: Path, hostname: str) -> dict[str, str]:
        """Return the environment that a container inherits from the node and its image.

        The variables of the container's own spec override these.
        """
        environment = [str(image.environment / "bin")] if image.environment else []
        path = [*environment, *self.settings.path, os.environ.get("PATH", os.defpath)]
        address, _, port = self.api.address.rpartition(":")
        found = {
            "PATH": os.pathsep.join(path),
            "HOME": str(home),
            "HOSTNAME": hostname,
            "KUBERNETES_SERVICE_HOST": address,
            "KUBERNETES_SERVICE_PORT": port,
            **self.settings.pod_env,
            **image.env,
        }
        if image.python_path:
            found["PYTHONPATH"] = os.pathsep.join(map(str, image.python_path))
        return found

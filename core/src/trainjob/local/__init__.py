"""The laptop cluster: a small Kubernetes API server, controllers and a kubelet that runs containers as processes."""

from __future__ import annotations

from trainjob.local.cluster import LocalCluster
from trainjob.local.images import Image

__all__ = ["Image", "LocalCluster"]

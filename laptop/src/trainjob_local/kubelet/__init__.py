"""A kubelet that runs pods as local processes.

It serves the laptop cluster and a real kube-apiserver.
"""

from __future__ import annotations

from trainjob_local.kubelet.container_logs import LogOptions, format_since
from trainjob_local.kubelet.kubelet import Kubelet, LogUnavailable
from trainjob_local.kubelet.settings import KubeletSettings

__all__ = ["Kubelet", "KubeletSettings", "LogOptions", "LogUnavailable", "format_since"]

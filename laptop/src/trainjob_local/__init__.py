"""The laptop cluster: a Kubernetes cluster in one process, for tests and demonstrations.

It consists of a small API server, controllers and a kubelet that runs containers as processes. The names of this
package are imported on first use, because pytest imports the package at its start (see `pytest_plugin`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob_local.cluster import LocalCluster
    from trainjob_local.fault_client import FaultClient
    from trainjob_local.images import Image

__all__ = ["FaultClient", "Image", "LocalCluster"]

_MODULES = {"FaultClient": "fault_client", "Image": "images", "LocalCluster": "cluster"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("trainjob-local")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

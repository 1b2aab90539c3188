"""Memory of the laptop cluster's node, for jobs that request more of it than there is."""

from __future__ import annotations

from trainjob.client import Cluster
from trainjob_local.quantity import parse_quantity

__all__ = ["RUN_ON_TWO_NODES", "get_large_memory"]

RUN_ON_TWO_NODES = 'echo "of $PET_NNODES"; [ "$PET_NNODES" = 2 ] || sleep 600'
"""Script of a job that ends only as an attempt with two nodes."""


def get_large_memory(cluster: Cluster) -> int:
    """Return two fifths of the node's memory in bytes: two pods fit, and three do not."""
    [node] = cluster._http.request("GET", "/api/v1/nodes", doing="list nodes")["items"]
    return int(parse_quantity(node["status"]["allocatable"]["memory"]) * 2 // 5)

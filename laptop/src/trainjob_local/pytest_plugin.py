"""pytest fixtures for tests that need a laptop cluster.

pytest finds this module by the entry point `pytest11`. The module imports the cluster's code only when a test uses a
fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trainjob_local import FaultClient, LocalCluster

__all__ = ["trainjob_cluster", "trainjob_cluster_options", "trainjob_faults"]


@pytest.fixture(scope="session")
def trainjob_cluster_options() -> dict[str, Any]:
    """Return the arguments of `LocalCluster` for `trainjob_cluster`.

    Override this fixture in a conftest.py to change them. By default, the environment of the tests replaces all images,
    so that no test downloads packages.
    """
    from trainjob_local.environments import stock_locks

    return {"environments": dict.fromkeys(stock_locks(), sys.prefix)}


@pytest.fixture(scope="session")
def trainjob_cluster(
    tmp_path_factory: pytest.TempPathFactory, trainjob_cluster_options: dict[str, Any]
) -> Iterator[LocalCluster]:
    """Start a laptop cluster for the session; `kubeconfig` is the path of its kubeconfig file."""
    from trainjob_local import LocalCluster

    with LocalCluster(**{"state": tmp_path_factory.mktemp("trainjob-cluster"), **trainjob_cluster_options}) as cluster:
        yield cluster


@pytest.fixture
def trainjob_faults(trainjob_cluster: LocalCluster) -> Iterator[FaultClient]:
    """Yield a client that switches on faults of `trainjob_cluster`; they end with the test."""
    from trainjob_local import FaultClient

    faults = FaultClient(trainjob_cluster.server, trainjob_cluster.token, trainjob_cluster.ca_file)
    yield faults
    faults.clear()

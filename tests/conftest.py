"""Fixtures for every test that talks to a cluster."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("trainjob", deadline=None)
settings.load_profile("trainjob")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for `waiting_for`, the tests' own module


@pytest.fixture(scope="session")
def laptop(tmp_path_factory):
    """One laptop cluster for the session; tests keep apart by names."""
    from trainjob.local import LocalCluster

    environments = {name: ROOT / ".venv" / name for name in ("torchtune", "initializer")}
    with LocalCluster(tmp_path_factory.mktemp("laptop"), environments=environments) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(laptop):
    """The laptop cluster through the project's own door."""
    from trainjob.cluster import Cluster, Connection

    opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), patience=5.0)
    yield opened
    opened.close()


@pytest.fixture
def unique():
    """A short name that nothing else uses."""
    return "t" + uuid.uuid4().hex[:8]

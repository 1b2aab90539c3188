"""Fixtures of tests on a real control plane; a test module may have a `plane` and a `namespace` of its own."""

from __future__ import annotations

import contextlib

import pytest

from control_plane import ControlPlane
from tests.support.demo_chain import ALL_ENVIRONMENTS
from tests.support.diagnosed_jobs import open_job_group
from trainjob.client import Cluster, Connection


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("plane") / "state", environments=ALL_ENVIRONMENTS) as created:
        yield created


@pytest.fixture
def namespace():
    return "default"


@pytest.fixture
def cluster(plane, namespace):
    connection = Connection(kubeconfig=str(plane.kubeconfig), namespace=namespace)
    with contextlib.closing(Cluster(connection, retry_seconds=20.0)) as opened:
        yield opened


@pytest.fixture
def job_group(cluster, unique):
    with open_job_group(cluster, unique) as opened:
        yield opened

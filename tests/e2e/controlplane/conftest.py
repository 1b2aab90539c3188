"""Fixtures of tests on a real control plane; a test module has `plane` and `namespace`."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.diagnosed_jobs import open_job_group
from trainjob.client import Cluster, Connection


@pytest.fixture
def cluster(plane, namespace):
    connection = Connection(kubeconfig=str(plane.kubeconfig), namespace=namespace)
    with contextlib.closing(Cluster(connection, retry_seconds=20.0)) as opened:
        yield opened


@pytest.fixture
def job_group(cluster, unique):
    with open_job_group(cluster, unique) as opened:
        yield opened

"""Fixtures of the tests of Kubeflow Pipelines."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_client import Client
from tests.support.shipped_manifests import load_objects


@pytest.fixture
def claim(cluster, unique):
    """Return the name of a new claim in the namespace `default`."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": unique, "namespace": "default"}
    cluster.create_claim({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return unique


@pytest.fixture(scope="session")
def promotion_account(laptop):
    """Create the service account of promotions in the namespace `default`."""
    client = Client.from_kubeconfig(str(laptop.kubeconfig))
    for found in load_objects("promotion"):
        client.create(found, "default")
    client.close()

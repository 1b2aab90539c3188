"""Fixtures of the tests of Kubeflow Pipelines."""

from __future__ import annotations

import pytest


@pytest.fixture
def claim(cluster, unique):
    """Return the name of a new claim in the namespace `default`."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": unique, "namespace": "default"}
    cluster.create_claim({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return unique

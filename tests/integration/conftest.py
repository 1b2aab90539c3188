"""Fixtures: a real MLflow server."""

from __future__ import annotations

import pytest

from tests.support.mlflow_server import MLflowServer


@pytest.fixture(scope="session")
def mlflow():
    """Yield a server that all tests share; each test uses its own experiment."""
    with MLflowServer() as server:
        yield server

"""A cluster behind a proxy that breaks streams, and a log follower that uses it."""

from __future__ import annotations

import pytest

from tests.integration.client.logs.log_recorder import LogRecorder
from tests.support.log_proxy import LogProxy
from trainjob.client import Cluster


@pytest.fixture
def proxy(laptop, tmp_path):
    with LogProxy(laptop, tmp_path) as opened:
        yield opened


@pytest.fixture
def proxied_cluster(proxy):
    """Yield a client of the cluster that connects through the proxy."""
    opened = Cluster(proxy.connection, retry_seconds=5.0)
    yield opened
    opened.close()


@pytest.fixture
def recorder(proxied_cluster, cluster, unique):
    """Yield a recorder that follows the logs of the pods that it creates."""
    with LogRecorder(proxied_cluster, cluster, unique) as opened:
        yield opened

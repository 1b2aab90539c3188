"""A cluster behind a wire that breaks, and what follows logs through it."""

from __future__ import annotations

import pytest
from following import Followed

from log_wire import LogWire
from trainjob.client import Cluster


@pytest.fixture
def wire(laptop, tmp_path):
    with LogWire(laptop, tmp_path) as opened:
        yield opened


@pytest.fixture
def there(wire):
    """The cluster through the wire."""
    opened = Cluster(wire.connection, patience=5.0)
    yield opened
    opened.close()


@pytest.fixture
def followed(there, cluster, unique):
    """Follows the logs of the pods that are made through it."""
    with Followed(there, cluster, unique) as opened:
        yield opened

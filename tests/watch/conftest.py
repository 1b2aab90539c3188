"""A scripted API server for each test, and a feed on it."""

from __future__ import annotations

import pytest
from listening import feed_of

from scripted_api import ScriptedApi


@pytest.fixture
def api():
    with ScriptedApi() as scripted:
        yield scripted


@pytest.fixture
def feed(api):
    with feed_of(api) as opened:
        yield opened

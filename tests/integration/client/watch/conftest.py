"""A scripted API server for each test, and an informer on it."""

from __future__ import annotations

import pytest

from tests.integration.client.watch.recording_handler import informer_of
from tests.integration.client.watch.scripted_api import ScriptedApi


@pytest.fixture
def api():
    with ScriptedApi() as scripted:
        yield scripted


@pytest.fixture
def informer(api):
    with informer_of(api) as opened:
        yield opened

"""A scripted API server for each test, and an informer on it."""

from __future__ import annotations

import pytest
from recording_handler import informer_of

from scripted_api import ScriptedApi


@pytest.fixture
def api():
    with ScriptedApi() as scripted:
        yield scripted


@pytest.fixture
def informer(api):
    with informer_of(api) as opened:
        yield opened

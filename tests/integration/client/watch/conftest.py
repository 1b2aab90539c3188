"""Fixtures: a scripted API server for each test, and an informer that uses it."""

from __future__ import annotations

import pytest

from tests.integration.client.watch.recording_handler import run_informer
from tests.integration.client.watch.scripted_api import ScriptedApi


@pytest.fixture
def api():
    with ScriptedApi() as scripted:
        yield scripted


@pytest.fixture
def informer(api):
    with run_informer(api) as opened:
        yield opened

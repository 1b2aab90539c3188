"""Fixtures for environments that are created on first use: an index on loopback, and a cache of the test's own."""

from __future__ import annotations

import os

import pytest

from tests.integration.local.environment_locks import TINY
from tests.support.package_index import PackageIndex
from trainjob_local.environments import EnvironmentLock


@pytest.fixture
def index():
    """Yield an index with the wheel `tiny`."""
    with PackageIndex([TINY]) as started:
        yield started


@pytest.fixture
def cache(tmp_path, monkeypatch, index):
    """Use a cache directory and an index of the test's own."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    return tmp_path / "cache"


@pytest.fixture
def write_lock(tmp_path):
    """Return a function that writes a lock of wheels."""

    def write(*wheels, name="tiny", **more):
        path = tmp_path / f"{name}.txt"
        path.write_text("# the lock of a test\n" + "".join(wheel.requirement for wheel in wheels))
        return EnvironmentLock(name, path, **more)

    return write

"""Random decisions of the tests, which can be repeated."""

from __future__ import annotations

import os
import random

import pytest


@pytest.fixture
def random_numbers():
    """Return a random number generator; set CHAOS_SEED to repeat its numbers."""
    seed = os.environ.get("CHAOS_SEED") or str(random.randrange(10**6))  # noqa: S311
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)  # noqa: S311

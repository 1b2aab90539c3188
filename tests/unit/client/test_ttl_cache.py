"""Tests of the cache of one value."""

from __future__ import annotations

import pytest

from trainjob.client.ttl_cache import TtlCache
from trainjob.errors import ClusterUnreachable


def test_a_value_is_read_again_when_it_is_too_old():
    now, reads = [0.0], []

    def read():
        reads.append(now[0])
        return len(reads)

    cache = TtlCache(read, 15.0, lambda: now[0])
    assert [cache.get(), cache.get()] == [1, 1]
    now[0] = 15.0
    assert cache.get() == 1
    now[0] = 15.5
    assert cache.get() == 2
    assert reads == [0.0, 15.5]


def test_an_error_of_the_cluster_is_cached():
    """Thousands of callers share one time-out, so that they do not wait for it one after the other."""
    now, reads = [0.0], []

    def read():
        reads.append(now[0])
        raise ClusterUnreachable("no")

    cache = TtlCache(read, 15.0, lambda: now[0])
    for _ in range(3):
        with pytest.raises(ClusterUnreachable, match="no"):
            cache.get()
    now[0] = 15.5
    with pytest.raises(ClusterUnreachable, match="no"):
        cache.get()
    assert reads == [0.0, 15.5]


def test_another_error_is_not_cached():
    results = iter([ValueError("no"), "yes"])

    def read():
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    cache = TtlCache(read, 15.0, lambda: 0.0)
    with pytest.raises(ValueError, match="no"):
        cache.get()
    assert cache.get() == "yes"

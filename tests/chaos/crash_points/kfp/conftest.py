"""A compiled component in pods on a laptop cluster, as in tests/chaos/kfp_pods."""

from __future__ import annotations

import pytest

from tests.support.kfp_pods import CompiledComponent, Pods


@pytest.fixture(scope="session")
def pods(cluster, tmp_path_factory):
    from trainjob_kfp import train

    component = CompiledComponent(train, tmp_path_factory.mktemp("component"))
    return Pods(cluster, component, tmp_path_factory.mktemp("pods"))

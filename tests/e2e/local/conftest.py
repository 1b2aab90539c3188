"""Fixtures for tests with the real kubectl."""

from __future__ import annotations

import pytest

from programs import KUBECTL
from tests.e2e.local.kubectl import Kubectl


@pytest.fixture(scope="session")
def kubectl_program():
    """Return the path of kubectl; skip the tests if it is not built."""
    program = KUBECTL.folder / "kubectl"
    if not program.exists():
        pytest.skip("kubectl is not built: run `python tests/controlplane/build.py --kubectl`, which needs Go")
    return program


@pytest.fixture
def kubectl(kubectl_program, laptop, unique, tmp_path):
    """Yield kubectl with a new namespace of the laptop cluster."""
    opened = Kubectl(kubectl_program, laptop.kubeconfig, unique, tmp_path)
    opened.run("create", "namespace", unique)
    yield opened
    opened.run("delete", "namespace", unique, "--wait=false")

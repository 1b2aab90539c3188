"""Fixtures for tests that run the commands of the pages."""

from __future__ import annotations

import pytest

from programs import KUBECTL
from tests.e2e.docs.page_stubs import make_environments, make_page_hub


@pytest.fixture(scope="session")
def kubectl_program():
    """Return the path of kubectl; skip the tests if it is not built."""
    program = KUBECTL.folder / "kubectl"
    if not program.exists():
        pytest.skip("kubectl is not built: run `python tests/controlplane/build.py --kubectl`, which needs Go")
    return program


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory):
    """Return a folder with the models and datasets of the pages."""
    return make_page_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="session")
def environments(tmp_path_factory):
    """Return the environments of the laptop clusters on which the commands run."""
    return make_environments(tmp_path_factory.mktemp("environments") / "torchtune")

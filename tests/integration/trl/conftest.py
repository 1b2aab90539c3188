"""TRL trainings on the laptop cluster, with the demo's tiny model and its tickets."""

from __future__ import annotations

import pytest

from tests.support.training_fixtures import environments, hub, run_training, submit_training, workspace

__all__ = ["hub", "run_training", "submit_training", "workspace"]


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    """Return the laptop cluster's arguments, with the environment of trl."""
    return {"environments": environments("trl")}


@pytest.fixture(scope="session")
def training_image():
    return "trl"

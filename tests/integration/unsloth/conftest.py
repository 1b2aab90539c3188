"""Requests for Unsloth on the laptop cluster, which has no GPU."""

from __future__ import annotations

import pytest

from tests.support.training_fixtures import hub, run_training, submit_training, workspace

__all__ = ["hub", "run_training", "submit_training", "workspace"]


@pytest.fixture(scope="session")
def training_image():
    """Return an image with torch, in which the program can look for a GPU."""
    return "torchtune-trainer"

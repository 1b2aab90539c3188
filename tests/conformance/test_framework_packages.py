"""A training with the framework of another package."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import claim
from tests.conformance.test_every_manifest import build_manifest, dry_run
from tests.support.framework_packages import line_framework, line_framework_folder
from tests.support.trainjobs import IMAGE
from trainjob import FineTune, RunKey
from trainjob.lifecycle import Listener, submit, wait

__all__ = ["line_framework", "line_framework_folder"]

pytestmark = [pytest.mark.since("2.0"), pytest.mark.usefixtures("line_framework")]


def line_training(**fields):
    config = {"framework": "line", "steps": 300, "resources_per_node": {"cpu": "100m"}}
    return FineTune(model="line", workspace="mine", config=config, image=IMAGE, **fields)


def test_a_framework_of_another_package_is_accepted(client, namespace, target):
    """The manifest of a framework of another package is accepted."""
    response = dry_run(client, namespace, build_manifest(line_training(output_path="$(x)"), namespace, target))
    assert response.ok, response.message


def test_a_framework_of_another_package_trains(client, namespace, cluster, unique):
    """A framework of another package trains in a workspace, and its log lines are the progress of the step."""
    client.create(claim("mine"), namespace)
    lines = []
    reference = submit(cluster, line_training(), RunKey("conformance", "frameworks", unique, "run-1"))
    outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(str(line))))
    outcome.raise_for_failure()
    assert "[node-0] y = 2.000 x + 1.000" in lines
    assert (outcome.progress.step, outcome.progress.total) == (300, 300)

"""Submissions right after the creation of their runtime, which the Trainer's webhook does not know for a moment."""

from __future__ import annotations

import pytest

from tests.support.trainjobs import shell, torch_runtime
from trainjob import RunKey, TrainJobManifest
from trainjob.errors import AdmissionRefused, ServerUnavailable
from trainjob.lifecycle import submit

# From a control plane with Trainer 2.3.
REFUSAL = (
    "the cluster refused to create trainjobs in namespace default: admission webhook "
    '"validator.trainjob.trainer.kubeflow.org" denied the request: spec.runtimeRef: Invalid value: {}: '
    "specified trainingRuntime must be created before the TrainJob is created"
)


@pytest.fixture
def refusals(cluster, monkeypatch):
    """Return a list; the creation of a TrainJob is refused once for each of its elements."""
    left, create = [], cluster.create_trainjob

    def create_trainjob(job):
        if left:
            raise AdmissionRefused(left.pop(), status=403)
        return create(job)

    monkeypatch.setattr(cluster, "create_trainjob", create_trainjob)
    return left


@pytest.fixture
def request_of_runtime(cluster, unique):
    """Create a runtime, and return a request for it."""
    runtime = torch_runtime(name=unique)
    cluster.runtimes.create({**runtime, "metadata": {**runtime["metadata"], "namespace": "default"}})
    yield TrainJobManifest(
        manifest={**shell("true", runtime=unique, kind="TrainingRuntime"), "metadata": {"name": unique}}
    )
    cluster.runtimes.delete(unique, "default")


def test_a_runtime_that_the_webhook_does_not_know_yet(cluster, unique, request_of_runtime, refusals):
    refusals += [REFUSAL, REFUSAL]
    reference = submit(cluster, request_of_runtime, RunKey("test", "", unique, "1"), namespace="default")
    assert refusals == []
    assert cluster.get_trainjob(reference.name, "default")
    cluster.delete_trainjob(reference.name, "default", reference.uid)


def test_the_submission_does_not_wait_longer_than_its_timeout(cluster, unique, request_of_runtime, refusals):
    refusals += [REFUSAL] * 1000
    with pytest.raises(ServerUnavailable, match="must be created before"):
        submit(cluster, request_of_runtime, RunKey("test", "", unique, "1"), namespace="default", timeout=0.5)


def test_another_refusal_is_final(cluster, unique, request_of_runtime, refusals):
    refusals += ["another rule", "another rule"]
    with pytest.raises(AdmissionRefused, match="another rule"):
        submit(cluster, request_of_runtime, RunKey("test", "", unique, "1"), namespace="default")
    assert len(refusals) == 1

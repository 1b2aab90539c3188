"""Numbers as JSON of other languages has them: 1.0 for a whole number or a quantity."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import ACCEPTED, ResponseSummary
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job

AMOUNTS = {"cpu": 1.0, "memory": 1024.0, "nvidia.com/gpu": 2.0}


def patch(pod):
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}]


def create(client, namespace, **spec):
    return client.request("POST", path_of("TrainJob", namespace), train_job(**spec), dryRun="All")


def test_whole_floats_are_integers_and_quantities(client, namespace):
    """A float without a fraction is accepted for a whole number and for a quantity, also in a map."""
    resources = {"requests": AMOUNTS, "limits": AMOUNTS}
    answer = create(client, namespace, trainer={"numNodes": 2.0, "numProcPerNode": 1.0, "resourcesPerNode": resources})
    assert ResponseSummary.from_response(answer) == ACCEPTED
    trainer = answer.body["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 1)
    assert {name: str(amount) for name, amount in trainer["resourcesPerNode"]["limits"].items()} == {
        "cpu": "1",
        "memory": "1024",
        "nvidia.com/gpu": "2",
    }


@pytest.mark.since("2.2")
def test_whole_floats_in_a_patch(client, namespace):
    """The same is so in items of lists of a patch, whose quantities become texts."""
    volume = {"name": "v", "emptyDir": {"sizeLimit": 1.0}}
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30.0}
    answer = create(client, namespace, runtimePatches=patch({"volumes": [volume], "tolerations": [toleration]}))
    assert ResponseSummary.from_response(answer) == ACCEPTED
    [found] = answer.body["spec"]["runtimePatches"]
    pod = found["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "v", "emptyDir": {"sizeLimit": "1"}}]
    assert pod["tolerations"] == [{**toleration, "tolerationSeconds": 30}]


@pytest.mark.since("2.3")
def test_fractions_are_refused(client, namespace):
    """A float with a fraction is refused for a quantity and for a whole number."""
    quantity = create(client, namespace, trainer={"resourcesPerNode": {"limits": {"cpu": 0.5}}})
    number = create(client, namespace, trainer={"numNodes": 1.5})
    assert (quantity.code, number.code) == (422, 400)
    assert "must be of type integer,string" in quantity.message

"""A TrainJob with an unknown kind of runtime: the webhook rejects it, so the test writes it into etcd."""

from __future__ import annotations

import base64
import json
import urllib.request

import pytest

from tests.support.trainjobs import conditions, is_finished, shell


def call_etcd(target, call, **body):
    """Call etcd's JSON gateway; keys and values are bytes."""
    coded = {name: base64.b64encode(value).decode() for name, value in body.items()}
    request = urllib.request.Request(f"{target.etcd}/v3/kv/{call}", json.dumps(coded).encode())  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return json.load(response)


@pytest.mark.only("controlplane")
def test_unknown_kind_of_runtime(client, namespace, target):
    """A job with an unknown kind of runtime gets no TrainingRuntimeNotSupported: the controller panics first."""
    client.create(shell("true", suspend=True), namespace)
    before = conditions(client.wait_for("TrainJob", namespace, "job", conditions))
    key = f"/registry/trainer.kubeflow.org/trainjobs/{namespace}/job".encode()
    (stored,) = call_etcd(target, "range", key=key)["kvs"]
    job = json.loads(base64.b64decode(stored["value"]))
    job["spec"]["runtimeRef"]["kind"] = "Foo"
    call_etcd(target, "put", key=key, value=json.dumps(job).encode())
    client.wait_for("TrainJob", namespace, "job", lambda job: job["spec"]["runtimeRef"]["kind"] == "Foo")
    client.create(shell("true", name="later"), namespace)
    client.wait_for("TrainJob", namespace, "later", is_finished)
    assert conditions(client.get("TrainJob", namespace, "job")) == before

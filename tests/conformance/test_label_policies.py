"""Admission policies that change the labels of TrainJobs, as Helm, Argo CD and platform teams set them."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, shell
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.errors import MetadataChanged
from trainjob.lifecycle import submit, wait

pytestmark = [pytest.mark.since("2.3"), pytest.mark.only("controlplane")]
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
MANAGED_BY, RUN_KEY = "app.kubernetes.io/managed-by", "trainjob.dev/run-key"


@pytest.fixture
def set_label(client, namespace, unique):
    """Return a function that adds a policy.

    It sets a label of the namespace's TrainJobs to `platform`.
    """

    def set_label(label, *operations):
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
        path = f"/metadata/labels/{label.replace('/', '~1')}"
        rule = {
            "apiGroups": ["trainer.kubeflow.org"],
            "apiVersions": ["*"],
            "operations": operations,
            "resources": ["trainjobs"],
        }
        spec = {
            "matchConstraints": {
                "resourceRules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
            "matchConditions": [{"name": "has-labels", "expression": "has(object.metadata.labels)"}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": f'[JSONPatch{{op: "add", path: "{path}", value: "platform"}}]'},
                }
            ],
        }
        assert client.request("POST", POLICIES, {**kind, "metadata": {"name": unique}, "spec": spec}).code == 201
        binding = {**kind, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": unique}}
        assert client.request("POST", BINDINGS, {**binding, "metadata": {"name": unique}}).code == 201
        probe = shell("true", name="probe")
        probe["metadata"]["labels"] = {"a": "b"}

        def is_effective():
            made = client.request("POST", path_of("TrainJob", namespace), probe, dryRun="All")
            return made.code == 201 and made.body["metadata"]["labels"].get(label) == "platform"

        wait_until(is_effective)

    yield set_label
    for path in (BINDINGS, POLICIES):
        client.request("DELETE", f"{path}/{unique}")


def submit_script(cluster, unique):
    trainer = CustomTrainerContainer(image=IMAGE, command=["true"])
    return submit(cluster, TrainJob(trainer=trainer), RunKey("conformance", "labels", unique, "run-1"))


def test_the_managed_by_label_belongs_to_nobody(cluster, client, namespace, unique, set_label):
    """A policy sets `app.kubernetes.io/managed-by` at the creation. The wait gets the job's events and its end."""
    set_label(MANAGED_BY, "CREATE")
    reference = submit_script(cluster, unique)
    assert client.get("TrainJob", namespace, reference.name)["metadata"]["labels"][MANAGED_BY] == "platform"
    assert wait(cluster, reference).succeeded


def test_a_changed_run_key_is_written_again(cluster, client, namespace, unique, set_label):
    """A policy changes the run key at the creation only. It is written again, and the wait gets the job's end."""
    set_label(RUN_KEY, "CREATE")
    reference = submit_script(cluster, unique)
    assert client.get("TrainJob", namespace, reference.name)["metadata"]["labels"][RUN_KEY] != "platform"
    assert wait(cluster, reference).succeeded


def test_a_run_key_that_cannot_be_written_is_an_error(cluster, client, namespace, unique, set_label):
    """A policy changes the run key at each write. The error names the label, and no job is left."""
    set_label(RUN_KEY, "CREATE", "UPDATE")
    with pytest.raises(MetadataChanged, match=RUN_KEY):
        submit_script(cluster, unique)
    assert client.request("GET", path_of("TrainJob", namespace)).body["items"] == []

"""Manifests of docs/how-to/manifests.md: each cluster accepts them, and the pods have what the page says."""

from __future__ import annotations

import pytest
import yaml

from tests.conformance.built_jobsets import find_container, find_pod_spec
from tests.support.code_blocks import ALL_BLOCKS
from tests.support.polling import wait_until
from tests.support.trainjobs import is_finished, list_pods

PAGE = "docs/how-to/manifests.md"
FILES = {
    block.title: list(yaml.safe_load_all(block.text))
    for block in ALL_BLOCKS
    if block.page == PAGE and block.title.endswith(".yaml")
}
TRAINER = "trainer.kubeflow.org/v1alpha1"


def create_file(client, namespace, name, **job_spec):
    """Create the objects of a file with strict validation, and return the TrainJob's name."""
    *runtimes, job = FILES[name]
    for runtime in runtimes:
        client.create(runtime, namespace)
    spec = {**job["spec"], **job_spec}
    changed = {**job, "spec": {key: value for key, value in spec.items() if value is not None}}
    errors = []

    def is_created():  # the Trainer's webhook looks runtimes up in a cache
        try:
            client.create(changed, namespace)
        except AssertionError as error:
            errors.append(str(error))
            if "must be created before the TrainJob" not in errors[-1]:
                raise
            return False
        return True

    wait_until(is_created)
    return job["metadata"]["name"]


def test_all_files_are_tested():
    """The page has these manifests for kubectl."""
    manifests = {name for name, documents in FILES.items() if documents[0].get("apiVersion") == TRAINER}
    assert manifests == {"nightly.yaml", "host-network.yaml", "flux.yaml"}


def test_an_exact_name(client, namespace):
    """A TrainJob that kubectl creates has exactly the name of its file."""
    name = create_file(client, namespace, "nightly.yaml")
    ended = client.wait_for("TrainJob", namespace, "nightly", is_finished)
    assert (name, ended["metadata"]["name"]) == ("nightly", "nightly")


def test_init_container_and_host_network(client, namespace, target):
    """The pods of a runtime have its init container and its hostNetwork; Kubernetes reserves the port on the node."""
    name = create_file(client, namespace, "host-network.yaml", suspend=True)
    wait_until(lambda: client.find("JobSet", namespace, name))
    pod = find_pod_spec(client.get("JobSet", namespace, name))
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert [container["name"] for container in pod["initContainers"]] == ["prepare"]
    if target.backend == "laptop":
        return
    client.patch("TrainJob", namespace, name, {"spec": {"suspend": False}})
    wait_until(lambda: list_pods(client, namespace, name))
    [port] = list_pods(client, namespace, name)[0]["spec"]["containers"][0]["ports"]
    assert (port["containerPort"], port["hostPort"]) == (29500, 29500)


@pytest.mark.differs("laptop", "the laptop cluster refuses runtimes of Flux")
@pytest.mark.since("2.2")
def test_the_flux_policy(client, namespace):
    """The Trainer adds an init container that installs Flux, and starts the command through its own script."""
    name = create_file(client, namespace, "flux.yaml", suspend=True)
    wait_until(lambda: client.find("JobSet", namespace, name))
    jobset = client.get("JobSet", namespace, name)
    assert find_container(jobset)["name"] == "node"
    assert [container["name"] for container in find_pod_spec(jobset)["initContainers"]] == ["flux-installer"]
    assert find_container(jobset)["command"] == ["/bin/bash", "/etc/flux-config/entrypoint.sh", "echo hello"]


@pytest.mark.only("controlplane")
@pytest.mark.since("2.2")
def test_flux_without_a_trainer(client, namespace):
    """Without a trainer, the Trainer creates no JobSet for a TrainJob with the policy of Flux."""
    name = create_file(client, namespace, "flux.yaml", suspend=True, trainer=None)
    other = create_file(client, namespace, "nightly.yaml", suspend=True)  # its JobSet shows that the Trainer works
    wait_until(lambda: client.find("JobSet", namespace, other))
    assert client.find("JobSet", namespace, name) is None

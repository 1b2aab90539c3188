"""Names of TrainJobs: invalid names, and accepted names that are too long for a JobSet."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import ACCEPTED, AdmissionCase, dry_run_cases, invalid
from tests.support.trainjobs import conditions, is_finished, list_pods, shell, train_job

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = "<nil>: Invalid value: metadata.name must match RFC 1035 DNS label format"
SHORT = "<nil>: Invalid value: metadata.name must be no more than 63 characters"
TUNE = "torchtune-llama3.2-1b"


def invalid_name(name):
    return f'[metadata.name: Invalid value: "{name}": {SUBDOMAIN}, {LABEL}]'


RULES = [
    AdmissionCase(name, train_job(name=name), invalid(text, name) if text else ACCEPTED)
    for name, text in {
        "a": "",
        "a-1": "",
        "x" * 63: "",
        "x" * 64: SHORT,
        "a.b": LABEL,
        "1abc": LABEL,
        "0" * 64: f"[{LABEL}, {SHORT}]",
        **{name: invalid_name(name) for name in ("Upper", "a_b", "-a", "a-", "a b", "é")},
    }.items()
]


def jobset_name_error(version, name, step):
    """Return the Trainer's message about a JobSet whose name is rejected."""
    if version[:2] == (2, 2):
        return f"unknown (patch jobsets.jobset.x-k8s.io {name})"
    head = f'JobSet.jobset.x-k8s.io "{name}" is invalid: ' if version >= (2, 2) else ""
    why = "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters"
    field = f'spec.replicatedJobs[0].name: Invalid value: "{name}-{step}-0": {why}'
    return f'admission webhook "vjobset.kb.io" denied the request: {head}{field}'


def test_name_rules(client, namespace, target):
    """A name starts with a letter, has up to 63 of a-z, 0-9 and -, and does not end with -. Others get 422."""
    found, expected = dry_run_cases(client, namespace, target.trainer, RULES)
    assert found == expected


def test_generated_names(client, namespace):
    """generateName gets a suffix of five characters. An invalid prefix is named in the error."""
    job = train_job(suspend=True)
    made = client.create({**job, "metadata": {"generateName": "made-"}}, namespace)["metadata"]["name"]
    assert made.startswith("made-")
    assert len(made) == len("made-") + 5
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    refused = client.request("POST", path, {**job, "metadata": {"generateName": "Made_"}})
    assert refused.code == 422
    assert f'metadata.generateName: Invalid value: "Made_": {SUBDOMAIN}' in refused.message


@pytest.mark.parametrize(
    ("longest", "runtime", "nodes"),
    [(48, "torch-distributed", 1), (47, "torch-distributed", 11), (33, TUNE, 1)],
    ids=["torch", "eleven nodes", "torchtune"],
)
def test_longest_names(client, namespace, target, longest, runtime, nodes):
    """Names work up to 48 characters, 47 with 11 nodes, 33 with initializers. Longer ones cause an event."""
    works, fails = "a" * longest, "b" * (longest + 1)
    for name in (works, fails):
        job = train_job(name=name, runtime=runtime, suspend=True, trainer={"numNodes": nodes})
        client.create(job, namespace)
    client.wait_for("JobSet", namespace, works, bool)
    event = client.wait_for("Event", namespace, "", lambda item: item["involvedObject"]["name"] == fails)
    step = "dataset-initializer" if runtime == TUNE else "node"
    assert (
        event["message"]
        == f"TrainJob resources reconciliation failed: {jobset_name_error(target.trainer, fails, step)}"
    )
    assert (event["involvedObject"]["kind"], event["type"]) == ("TrainJob", "Warning")
    assert event["reason"] == "TrainJobResourcesCreationFailed"
    assert client.find("JobSet", namespace, fails) is None


def test_status_of_a_name_that_is_too_long(client, namespace):
    """A job with a name that is too long has no status, except for the condition Suspended."""
    running, suspended = "r" * 49, "s" * 49
    client.create(shell("true", name=running), namespace)
    client.create(shell("true", name=suspended, suspend=True), namespace)
    for name in (running, suspended):
        client.wait_for("Event", namespace, "", lambda item, name=name: item["involvedObject"]["name"] == name)
    held = client.wait_for("TrainJob", namespace, suspended, conditions)
    assert conditions(held) == [("Suspended", "True", "Suspended", "TrainJob is suspended")]
    assert "jobsStatus" not in held["status"]
    assert not client.get("TrainJob", namespace, running).get("status")


def test_a_job_with_the_longest_name(client, namespace):
    """A job with a name of 48 characters runs; its pod's name has 63."""
    name = "c" * 48
    client.create(shell("true", name=name), namespace)
    client.wait_for("TrainJob", namespace, name, is_finished)
    assert [len(pod["metadata"]["name"]) for pod in list_pods(client, namespace, name)] == [63]

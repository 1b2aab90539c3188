"""TrainJobs like those that people publish: every cluster accepts them, or rejects them with the same code."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.conformance.runtimes import create_runtime, replicated_job
from tests.support.kubernetes_client import path_of

FILES = sorted(Path(__file__).with_name("public_examples").glob("*.yaml"))
EXAMPLES = {file.stem: yaml.safe_load(file.read_text()) for file in FILES}


def dry_run_example(client, namespace, example, **query):
    """Create the example's runtime if it has one, and dry-run its TrainJob."""
    if runtime := example.get("runtime"):
        jobs = [replicated_job(name) for name in runtime["steps"]]
        if runtime.get("plain"):
            for job in jobs:
                del job["template"]["metadata"]
        policy = {} if runtime.get("plain") else {"mlPolicy": {"numNodes": 1, "torch": {}}}
        create_runtime(client, namespace, {**policy, "template": {"spec": {"replicatedJobs": jobs}}}, runtime["name"])
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **example["job"]}
    return client.request("POST", path_of("TrainJob", namespace), body, dryRun="All", **query)


def format_version(target):
    return ".".join(map(str, target.trainer))


def test_number_of_examples():
    """There are at least ten examples."""
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("name", EXAMPLES)
def test_strict_validation(client, namespace, target, name):
    """With fieldValidation=Strict, a published TrainJob gets the status code that its file has for this version."""
    example = EXAMPLES[name]
    found = dry_run_example(client, namespace, example, fieldValidation="Strict")
    assert found.code == example["strict"][format_version(target)], found.message
    if target.trainer >= (2, 3) and "says" in example:
        assert example["says"] in found.message


@pytest.mark.parametrize("name", EXAMPLES)
def test_default_validation(client, namespace, target, name):
    """Without Strict, the default of most clients, a published TrainJob gets the status code that its file has."""
    example = EXAMPLES[name]
    found = dry_run_example(client, namespace, example)
    assert found.code == example["lenient"][format_version(target)], found.message

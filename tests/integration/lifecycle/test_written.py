"""Tests that a TrainJob from a manifest is adopted, labelled and validated like any other."""

from __future__ import annotations

import pytest

from trainjob import (
    CustomTrainerContainer,
    InvalidSpec,
    RunKey,
    TrainJob,
    TrainJobManifest,
    cancel,
    submit,
    wait,
)
from trainjob.errors import AdmissionRefused
from trainjob.manifest import labels


def trainjob_manifest(script="echo hello", **metadata):
    return TrainJobManifest(
        manifest={
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"labels": {"team": "tickets", labels.ATTEMPT: "9"}, **metadata},
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"image": "busybox", "command": ["sh", "-c", script]},
            },
        }
    )


def test_a_manifest_is_submitted_once_and_adopted(cluster, unique):
    key = RunKey("test", "manifest", unique, "run-1")
    first = submit(cluster, trainjob_manifest(name="nightly"), key)
    again = submit(cluster, trainjob_manifest(name="nightly"), key)
    assert (again.uid, again.adopted, first.adopted) == (first.uid, True, False)
    assert first.name.startswith("nightly-")
    job = cluster.get_trainjob(first.name, first.namespace)
    assert job["metadata"]["labels"]["team"] == "tickets"
    assert job["metadata"]["labels"][labels.ATTEMPT] == "1"
    assert wait(cluster, first).succeeded
    other = submit(cluster, trainjob_manifest("echo other", name="nightly"), key)
    assert not other.adopted
    cancel(cluster, other)


def test_an_unknown_field_is_refused_with_its_name(cluster, unique):
    job = trainjob_manifest()
    job.manifest["spec"]["trainer"]["imagePolicy"] = "Always"
    with pytest.raises(AdmissionRefused, match=r'unknown field "spec\.trainer\.imagePolicy"'):
        submit(cluster, job, RunKey("test", "manifest", unique, "run-1"))


def test_a_manifest_of_another_namespace_is_refused(cluster, unique):
    key = RunKey("test", "manifest", unique, "run-1")
    with pytest.raises(
        InvalidSpec, match=r"manifest\.metadata\.namespace cannot be 'a': 'b' is requested as the namespace, too"
    ):
        submit(cluster, trainjob_manifest(namespace="a"), key, namespace="b")


def test_the_namespace_of_the_manifest_is_used(cluster, unique):
    reference = submit(cluster, trainjob_manifest(namespace="default"), RunKey("test", "manifest", unique, "run-1"))
    assert reference.namespace == "default"
    cancel(cluster, reference)


def test_other_variables_do_not_change_the_request(cluster, unique):
    key = RunKey("test", "variables", unique, "run-1")
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", 'test "$USER_NAME" = first']))
    first = submit(cluster, job, key, variables={"USER_NAME": "first"})
    assert submit(cluster, job, key, variables={"USER_NAME": "second"}).uid == first.uid
    assert wait(cluster, first).succeeded

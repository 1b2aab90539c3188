"""Values of containers: variables with sources, and resources whose requests differ from their limits."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    CustomTrainerContainer,
    InvalidSpec,
    ResourceRequirements,
    SecretKeyReference,
    TrainJob,
    TrainJobManifest,
)
from trainjob.manifest import build_trainjob, spec_hash
from trainjob.spec.resources import count_gpus, parse_quantity

FIELD = {"fieldRef": {"fieldPath": "spec.nodeName"}}


def build(**trainer):
    job = TrainJob(trainer=CustomTrainerContainer(image="i", **trainer))
    return build_trainjob(job, name="job", namespace="ml")["spec"]["trainer"]


# -- variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        FIELD,
        {"configMapKeyRef": {"name": "settings", "key": "region", "optional": True}},
        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        {"secretKeyRef": {"name": "s", "key": "k"}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_a_variable_has_any_source_of_kubernetes(source):
    expected = [{"name": "A", "valueFrom": source}]
    assert build(env={"A": source})["env"] == build(env={"A": {"valueFrom": source}})["env"] == expected


def test_a_key_of_a_secret_is_the_same_request_in_each_form():
    requests = [
        TrainJob(trainer=CustomTrainerContainer(env={"A": value}))
        for value in (
            SecretKeyReference(name="s", key="k"),
            {"name": "s", "key": "k"},
            {"secretKeyRef": {"name": "s", "key": "k"}},
        )
    ]
    assert len({spec_hash(request) for request in requests}) == 1


@pytest.mark.parametrize(
    ("source", "field", "rule"),
    [
        ({"fieldRef": {"fieldpath": "a"}}, "A.fieldRef.fieldPath", ""),
        ({"fieldRef": {"fieldPath": "a", "x": 1}}, "A.fieldRef.x", "there is no field 'x'"),
        ({"configMapKeyRef": {"key": "k"}}, "A.configMapKeyRef.name", "name the ConfigMap"),
        ({"configMapKeyRef": {"name": "m", "key": "k"}, **FIELD}, "A", "give exactly one"),
        ({"fieldRef": None}, "A", "give exactly one"),
        ({"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}, "A.fileKeyRef", "no Trainer up to 2.3"),
        ({"secretKeyRef": {"name": "s"}}, "A.secretKeyRef.key", ""),
        ({"name": "s", "kye": "k"}, "A.kye", "SecretKeyReference"),
    ],
)
def test_a_source_that_no_container_could_read_is_refused(source, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        CustomTrainerContainer(env={"A": source})
    found = {problem.field: problem.allowed for problem in raised.value.problems}
    assert rule in found[f"env.{field}"]


# -- resources --------------------------------------------------------------------------------------------------------


def test_requests_and_limits_are_sent_as_they_are():
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2, "gpu": 1}}
    expected = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    for given_resources in (resources, ResourceRequirements(**resources)):
        assert build(resources_per_node=given_resources)["resourcesPerNode"] == expected
    assert count_gpus(ResourceRequirements(**resources)) == 1


def test_only_one_of_them_may_be_given():
    assert build(resources_per_node={"requests": {"cpu": 1}})["resourcesPerNode"] == {"requests": {"cpu": "1"}}
    assert build(resources_per_node={"limits": {"gpu": 1}})["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": "1"}}


@pytest.mark.parametrize(
    ("resources", "field", "rule"),
    [
        ({"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}, "requests.cpu", "the limit is 1500m"),
        ({"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}, "requests.memory", "the limit is 1G"),
        ({"requests": {"gpu": 1}, "limits": {"gpu": 2}}, "requests.nvidia.com/gpu", "devices are not shared"),
        ({"limits": {"gpu": "half"}}, "limits.gpu", "quantity"),
        ({"limits": {}, "cpu": 1}, "cpu", "there is no field 'cpu' in ResourceRequirements"),
        ({"limits": {"gpu": 1}, "claims": [{"name": "gpus"}]}, "claims", "no Trainer up to 2.3 passes on the claims"),
        ({"claims": [{"name": "gpus"}]}, "claims", "use a training runtime with the claims"),
    ],
)
def test_resources_that_no_pod_could_have_are_refused(resources, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        CustomTrainerContainer(resources_per_node=resources)
    [problem] = raised.value.problems
    assert problem.field == f"resources_per_node.{field}"
    assert rule in problem.allowed


def test_a_manifest_with_what_the_trainer_drops_is_refused():
    def manifest(trainer):
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}

    with pytest.raises(InvalidSpec, match=r"manifest\.spec\.trainer\.resourcesPerNode\.claims .*no Trainer up to 2\.3"):
        TrainJobManifest(manifest=manifest({"resourcesPerNode": {"claims": [{"name": "gpus"}]}}))
    variable = {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}
    with pytest.raises(InvalidSpec, match=r"manifest\.spec\.trainer\.env\[0\]\.valueFrom\.fileKeyRef .*no Trainer"):
        TrainJobManifest(manifest=manifest({"env": [variable]}))


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "Ki", "M", "Mi", "e3"]))
def test_quantities_are_exact_numbers(number, suffix):
    factors = {"m": Fraction(1, 1000), "k": 1000, "Ki": 1024, "M": 10**6, "Mi": 1024**2, "e3": 1000}
    assert parse_quantity(f"{number}{suffix}") == number * factors.get(suffix, 1)

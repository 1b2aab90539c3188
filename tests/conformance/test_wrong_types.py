"""Values of wrong types, and objects that are not TrainJobs: the webhook or the schema rejects them."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import (
    ACCEPTED,
    AdmissionCase,
    ResponseSummary,
    bad_request,
    case,
    dry_run_cases,
    invalid_schema,
    runtime_patches,
    trainer_case,
    undecodable,
)
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import torch_runtime

API = "trainer.kubeflow.org/v1alpha1"
QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
GO_POD = "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec"


def trainjob_named(name="job", **rest):
    return {"apiVersion": API, "kind": "TrainJob", "metadata": {"name": name}, "spec": {}, **rest}


def pod(**fields):
    return runtime_patches(pod=fields)


def cpu_limit(amount):
    return {"resourcesPerNode": {"limits": {"cpu": amount}}}


CPU = "spec.trainer.resourcesPerNode.limits.cpu"
FRACTION = invalid_schema(
    f'{CPU}: Invalid value: "number": {CPU} in body must be of type integer,string: "number", <nil>: Invalid value: "'
    f'": "{CPU}" must validate at least one schema (anyOf), {CPU}: Invalid value: "number": {CPU} in body must be of '
    f'type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in {CPU}'
)
TYPES = [
    # field of the trainer, value, its type and the required type in Go, and both in the schema's terms (up to 2.1)
    ("numNodes", "2", "string", "int32", "string", "integer"),
    ("numNodes", [1], "array", "int32", "array", "integer"),
    ("command", "x", "string", "[]string", "string", "array"),
    ("image", 3, "number", "string", "integer", "string"),
    ("env", "A=b", "string", "[]v1.EnvVar", "string", "array"),
]


def wrong_type_cases(field, value, given_type, go_type, json_type, schema_type):
    """Return the cases of one value: for the webhook since 2.2, and for the schema before."""
    path = f"spec.trainer.{field}"
    message = f'{path}: Invalid value: "{json_type}": {path} in body must be of type {schema_type}: "{json_type}"'
    struct = f"json: cannot unmarshal {given_type} into Go struct field Trainer.{path} of type {go_type}"
    return [
        trainer_case(f"{field} {value!r}", undecodable(struct), since=(2, 2), **{field: value}),
        trainer_case(f"{field} {value!r}, 2.1", invalid_schema(message), before=(2, 2), **{field: value}),
    ]


def undecodable_case(title, text, **spec):
    return case(title, undecodable(text), since=(2, 2), **spec)


WRONG_TYPES = [
    *(one for row in TYPES for one in wrong_type_cases(*row)),
    undecodable_case(
        "half a node",
        "json: cannot unmarshal number 1.5 into Go struct field Trainer.spec.trainer.numNodes of type int32",
        trainer={"numNodes": 1.5},
    ),
    undecodable_case(
        "too many nodes for an int32",
        "json: cannot unmarshal number 2147483648 into Go struct field Trainer.spec.trainer.numNodes of type int32",
        trainer={"numNodes": 2**31},
    ),
    undecodable_case(
        "a number in a command",
        "json: cannot unmarshal number into Go struct field Trainer.spec.trainer.command of type string",
        trainer={"command": ["sleep", 3]},
    ),
    undecodable_case(
        "a variable that is a number",
        "json: cannot unmarshal number into Go struct field EnvVar.spec.trainer.env.value of type string",
        trainer={"env": [{"name": "A", "value": 3}]},
    ),
    undecodable_case(
        "suspend yes",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.suspend of type bool",
        suspend="yes",
    ),
    undecodable_case(
        "a deadline as text",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.activeDeadlineSeconds of type int64",
        activeDeadlineSeconds="3",
    ),
    undecodable_case(
        "a runtime as text",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.runtimeRef of type v1alpha1.RuntimeRef",
        runtimeRef="torch-distributed",
    ),
    undecodable_case(
        "a node selector with a number",
        f"json: cannot unmarshal number into Go struct field PodSpecPatch.{GO_POD}.nodeSelector of type string",
        runtimePatches=pod(nodeSelector={"zone": 1}),
    ),
    undecodable_case(
        "a user as text",
        "json: cannot unmarshal string into Go struct field PodSecurityContext."
        f"{GO_POD}.securityContext.runAsUser of type int64",
        runtimePatches=pod(securityContext={"runAsUser": "x"}),
    ),
    undecodable_case(
        "an invalid time",
        'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        runtimePatches=runtime_patches(time="yesterday"),
    ),
    *(
        trainer_case(
            f"cpu {amount!r}", undecodable(QUANTITY), since=(2, 2), resourcesPerNode={"limits": {"cpu": amount}}
        )
        for amount in ("abc", "", "4GB", "4 Gi", True)
    ),
    undecodable_case("a quantity next to another mistake", QUANTITY, trainer={"numNodes": "x", **cpu_limit("abc")}),
    case("half a CPU as a number", FRACTION, trainer=cpu_limit(0.5)),
    case("half a CPU as text", ACCEPTED, trainer=cpu_limit("0.5")),
    case(
        "half a CPU as a number, next to a patch", ACCEPTED, since=(2, 2), trainer=cpu_limit(0.5), runtimePatches=pod()
    ),
    case("one CPU as a number", ACCEPTED, trainer=cpu_limit(1)),
    trainer_case(
        "null in a command",
        invalid_schema(
            'spec.trainer.command[0]: Invalid value: "null": spec.trainer.command[0] in body must be of type string: '
            '"null"'
        ),
        command=[None],
    ),
]
# Security contexts in a patch of a pod: the laptop cluster stores them without validation.
IN_PATCHES = ("a user as text",)
NOT_A_TRAINJOB = [
    AdmissionCase(
        "another kind",
        {**trainjob_named(), "kind": "TrainingRuntime"},
        ResponseSummary(
            422,
            "Invalid",
            'TrainingRuntime.trainer.kubeflow.org "job" is invalid: kind: Invalid value: "TrainingRuntime": '
            "must be TrainJob",
        ),
    ),
    AdmissionCase(
        "no version",
        {key: value for key, value in trainjob_named().items() if key != "apiVersion"},
        ResponseSummary(
            400, "BadRequest", f"the API version in the data () does not match the expected API version ({API})"
        ),
    ),
    AdmissionCase(
        "a label that is a number",
        trainjob_named(metadata={"name": "job", "labels": {"a": 1}}),
        bad_request("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
    ),
    AdmissionCase(
        "metadata as text",
        trainjob_named(metadata="job"),
        bad_request("json: cannot unmarshal string into Go value of type v1.ObjectMeta"),
    ),
    AdmissionCase(
        "a spec that is a list, 2.1",
        trainjob_named(spec=[]),
        invalid_schema('spec: Invalid value: "array": spec in body must be of type object: "array"'),
        before=(2, 2),
    ),
    AdmissionCase(
        "a spec that is a list",
        trainjob_named(spec=[]),
        undecodable("json: cannot unmarshal array into Go struct field TrainJob.spec of type v1alpha1.TrainJobSpec"),
        since=(2, 2),
    ),
]


@pytest.mark.parametrize("cases", [WRONG_TYPES, NOT_A_TRAINJOB], ids=["wrong types", "not a TrainJob"])
def test_codes_of_wrong_types(client, namespace, target, cases):
    """A value of a wrong type gets the same code on every cluster."""
    found, expected = dry_run_cases(
        client, namespace, target.trainer, [one for one in cases if one.title not in IN_PATCHES]
    )
    assert {title: (one.code, one.reason) for title, one in found.items()} == {
        title: (one.code, one.reason) for title, one in expected.items()
    }


@pytest.mark.differs("laptop", "the messages name JSON types instead of Go types")
@pytest.mark.parametrize("cases", [WRONG_TYPES, NOT_A_TRAINJOB], ids=["wrong types", "not a TrainJob"])
def test_messages_of_wrong_types(client, namespace, target, cases):
    """A value of a wrong type gets 400 from the webhook's decoder. Up to 2.1 it gets 422 from the schema."""
    found, expected = dry_run_cases(client, namespace, target.trainer, cases)
    assert found == expected


RUNTIME_POD = "spec.template.spec.replicatedJobs[0].template.spec.template.spec"
DIVISOR = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 0.1}}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1.5}}}}
FRACTIONS = [
    ("containers[0].resources.limits.cpu", {"resources": {"limits": {"cpu": 0.5}}}, {}),
    ("containers[0].resources.requests.cpu", {"resources": {"requests": {"cpu": 0.5}}}, {}),
    ("containers[0].env[0].valueFrom.resourceFieldRef.divisor", {"env": [{"name": "A", "valueFrom": DIVISOR}]}, {}),
    ("volumes[0].emptyDir.sizeLimit", {}, {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": 0.5}}]}),
    (
        "volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        {},
        {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": CLAIM}}]},
    ),
]


@pytest.mark.parametrize(("field", "container", "pod_fields"), FRACTIONS, ids=[row[0] for row in FRACTIONS])
def test_a_fraction_in_a_runtime(client, namespace, field, container, pod_fields):
    """A quantity of a runtime that is a number with a fraction gets 422; the same as text or whole is accepted."""

    def create(number):
        runtime = torch_runtime()
        spec = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        spec["containers"][0] |= container
        spec |= pod_fields
        body = replace_fractions(runtime, number)
        return client.request("POST", path_of("TrainingRuntime", namespace), body, dryRun="All")

    refused = create(lambda number: number)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert f"{RUNTIME_POD}.{field} in body must be of type integer,string" in refused.message
    assert [create(str).code, create(lambda _: 1.0).code] == [201, 201]


def replace_fractions(value, new):
    """Return an object whose numbers with a fraction are replaced by a function's result."""
    if isinstance(value, dict):
        return {key: replace_fractions(inner, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replace_fractions(inner, new) for inner in value]
    return new(value) if isinstance(value, float) else value

"""Values of wrong types: the webhook can't read them, or the schema refuses them; and what is no TrainJob at all."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import (
    ACCEPTED,
    Case,
    Said,
    answers,
    bad_request,
    broken,
    case,
    of_trainer,
    patches,
    undecodable,
)

API = "trainer.kubeflow.org/v1alpha1"
QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
GO_POD = "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec"


def named(name="job", **rest):
    return {"apiVersion": API, "kind": "TrainJob", "metadata": {"name": name}, "spec": {}, **rest}


def pod(**fields):
    return patches(pod=fields)


def half(amount):
    return {"resourcesPerNode": {"limits": {"cpu": amount}}}


CPU = "spec.trainer.resourcesPerNode.limits.cpu"
FRACTION = broken(
    f'{CPU}: Invalid value: "number": {CPU} in body must be of type integer,string: "number", <nil>: Invalid value: "'
    f'": "{CPU}" must validate at least one schema (anyOf), {CPU}: Invalid value: "number": {CPU} in body must be of '
    f'type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in {CPU}'
)
TYPES = [
    # field of the trainer, value, its type and the wanted one in Go, and in the words of the schema (up to 2.1)
    ("numNodes", "2", "string", "int32", "string", "integer"),
    ("numNodes", [1], "array", "int32", "array", "integer"),
    ("command", "x", "string", "[]string", "string", "array"),
    ("image", 3, "number", "string", "integer", "string"),
    ("env", "A=b", "string", "[]v1.EnvVar", "string", "array"),
]


def wrong(field, value, given, go, known_as, wanted):
    """From 2.2 on the defaulting webhook can't read it, before the schema refuses it."""
    path = f"spec.trainer.{field}"
    said = f'{path}: Invalid value: "{known_as}": {path} in body must be of type {wanted}: "{known_as}"'
    struct = f"json: cannot unmarshal {given} into Go struct field Trainer.{path} of type {go}"
    return [
        of_trainer(f"{field} {value!r}", undecodable(struct), since=(2, 2), **{field: value}),
        of_trainer(f"{field} {value!r}, 2.1", broken(said), before=(2, 2), **{field: value}),
    ]


def unreadable(title, text, **spec):
    return case(title, undecodable(text), since=(2, 2), **spec)


WRONG_TYPES = [
    *(one for row in TYPES for one in wrong(*row)),
    unreadable(
        "half a node",
        "json: cannot unmarshal number 1.5 into Go struct field Trainer.spec.trainer.numNodes of type int32",
        trainer={"numNodes": 1.5},
    ),
    unreadable(
        "too many nodes for an int32",
        "json: cannot unmarshal number 2147483648 into Go struct field Trainer.spec.trainer.numNodes of type int32",
        trainer={"numNodes": 2**31},
    ),
    unreadable(
        "a number in a command",
        "json: cannot unmarshal number into Go struct field Trainer.spec.trainer.command of type string",
        trainer={"command": ["sleep", 3]},
    ),
    unreadable(
        "a variable that is a number",
        "json: cannot unmarshal number into Go struct field EnvVar.spec.trainer.env.value of type string",
        trainer={"env": [{"name": "A", "value": 3}]},
    ),
    unreadable(
        "suspend yes",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.suspend of type bool",
        suspend="yes",
    ),
    unreadable(
        "a deadline as text",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.activeDeadlineSeconds of type int64",
        activeDeadlineSeconds="3",
    ),
    unreadable(
        "a runtime as text",
        "json: cannot unmarshal string into Go struct field TrainJobSpec.spec.runtimeRef of type v1alpha1.RuntimeRef",
        runtimeRef="torch-distributed",
    ),
    unreadable(
        "a node selector with a number",
        f"json: cannot unmarshal number into Go struct field PodSpecPatch.{GO_POD}.nodeSelector of type string",
        runtimePatches=pod(nodeSelector={"zone": 1}),
    ),
    unreadable(
        "a user as text",
        "json: cannot unmarshal string into Go struct field PodSecurityContext."
        f"{GO_POD}.securityContext.runAsUser of type int64",
        runtimePatches=pod(securityContext={"runAsUser": "x"}),
    ),
    unreadable(
        "a time that is none",
        'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        runtimePatches=patches(time="yesterday"),
    ),
    *(
        of_trainer(f"cpu {amount!r}", undecodable(QUANTITY), since=(2, 2), resourcesPerNode={"limits": {"cpu": amount}})
        for amount in ("abc", "", "4GB", "4 Gi", True)
    ),
    unreadable("a quantity next to another mistake", QUANTITY, trainer={"numNodes": "x", **half("abc")}),
    case("half a CPU as a number", FRACTION, trainer=half(0.5)),
    case("half a CPU as text", ACCEPTED, trainer=half("0.5")),
    case("half a CPU as a number, next to a patch", ACCEPTED, since=(2, 2), trainer=half(0.5), runtimePatches=pod()),
    case("one CPU as a number", ACCEPTED, trainer=half(1)),
    of_trainer(
        "null in a command",
        broken(
            'spec.trainer.command[0]: Invalid value: "null": spec.trainer.command[0] in body must be of type string: '
            '"null"'
        ),
        command=[None],
    ),
]
# Security contexts in a patch of a pod: the laptop cluster keeps them as they are.
IN_PATCHES = ("a user as text",)
NOT_A_TRAINJOB = [
    Case(
        "another kind",
        {**named(), "kind": "TrainingRuntime"},
        Said(
            422,
            "Invalid",
            'TrainingRuntime.trainer.kubeflow.org "job" is invalid: kind: Invalid value: "TrainingRuntime": '
            "must be TrainJob",
        ),
    ),
    Case(
        "no version",
        {key: value for key, value in named().items() if key != "apiVersion"},
        Said(400, "BadRequest", f"the API version in the data () does not match the expected API version ({API})"),
    ),
    Case(
        "a label that is a number",
        named(metadata={"name": "job", "labels": {"a": 1}}),
        bad_request("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
    ),
    Case(
        "metadata that is a text",
        named(metadata="job"),
        bad_request("json: cannot unmarshal string into Go value of type v1.ObjectMeta"),
    ),
    Case(
        "a spec that is a list, 2.1",
        named(spec=[]),
        broken('spec: Invalid value: "array": spec in body must be of type object: "array"'),
        before=(2, 2),
    ),
    Case(
        "a spec that is a list",
        named(spec=[]),
        undecodable("json: cannot unmarshal array into Go struct field TrainJob.spec of type v1alpha1.TrainJobSpec"),
        since=(2, 2),
    ),
]


@pytest.mark.parametrize("cases", [WRONG_TYPES, NOT_A_TRAINJOB], ids=["wrong types", "not a TrainJob"])
def test_codes(client, namespace, target, cases):
    """A value of a wrong type is refused with the same code everywhere, whatever the text is."""
    found, expected = answers(client, namespace, target.trainer, [one for one in cases if one.title not in IN_PATCHES])
    assert {title: (one.code, one.reason) for title, one in found.items()} == {
        title: (one.code, one.reason) for title, one in expected.items()
    }


@pytest.mark.differs("laptop", "texts name JSON's types instead of Go's")
@pytest.mark.parametrize("cases", [WRONG_TYPES, NOT_A_TRAINJOB], ids=["wrong types", "not a TrainJob"])
def test_wrong_types(client, namespace, target, cases):
    """A wrong type is refused by the decoder of the webhook (400, no reason); up to 2.1 by the schema (422)."""
    found, expected = answers(client, namespace, target.trainer, cases)
    assert found == expected

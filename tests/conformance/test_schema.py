"""Requests that the CRD's schema or its CEL rules reject."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.admission_cases import (
    ACCEPTED,
    UNCHECKED,
    ResponseSummary,
    case,
    dry_run_cases,
    invalid,
    invalid_schema,
    remove_problems,
    runtime_patches,
    trainer_case,
)
from tests.support.kubernetes_client import path_of

MANAGED_BY = "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set"
POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
LONG = "Too long: may not be more than"
MANY = "Too many: 129: must have at most 128 items"
VARIABLES = [{"name": f"A{number}"} for number in range(129)]


def pod(**fields):
    return runtime_patches(pod=fields)


LIMITS = [
    *(trainer_case(f"numNodes {number}", ACCEPTED, numNodes=number) for number in (0, -1, 1.0)),
    *(trainer_case(f"numProcPerNode {number}", ACCEPTED, numProcPerNode=number) for number in (0, -1)),
    trainer_case("image", invalid_schema(f"spec.trainer.image: {LONG} 500 bytes"), since=(2, 2), image="x" * 501),
    trainer_case("command", invalid_schema(f"spec.trainer.command: {MANY}"), since=(2, 2), command=["x"] * 129),
    trainer_case("args", invalid_schema(f"spec.trainer.args: {MANY}"), since=(2, 2), args=["x"] * 129),
    trainer_case("env", invalid_schema(f"spec.trainer.env: {MANY}"), since=(2, 2), env=VARIABLES),
    trainer_case(
        "no limits in 2.1",
        ACCEPTED,
        before=(2, 2),
        image="x" * 501,
        command=["x"] * 129,
        args=["x"] * 129,
        env=VARIABLES,
    ),
    trainer_case("64 KiB of argument", ACCEPTED, since=(2, 3), args=["x" * 65_537]),
    trainer_case(
        "64 KiB of argument in 2.2",
        invalid_schema(f"spec.trainer.args[0]: {LONG} 65536 bytes"),
        since=(2, 2),
        before=(2, 3),
        args=["x" * 65_537],
    ),
    trainer_case(
        "1 MiB of argument",
        invalid_schema(f"spec.trainer.args[0]: {LONG} 1048576 bytes"),
        since=(2, 3),
        args=["x" * 1_048_577],
    ),
    case(
        "a deadline of 0",
        invalid(
            "spec.activeDeadlineSeconds: Invalid value: 0: spec.activeDeadlineSeconds in body should be greater than "
            "or equal to 1"
        ),
        since=(2, 2),
        activeDeadlineSeconds=0,
    ),
    case("managedBy foo", invalid(f'spec.managedBy: Invalid value: "foo": {MANAGED_BY}'), managedBy="foo"),
    case("managedBy MultiKueue", ACCEPTED, managedBy="kueue.x-k8s.io/multikueue"),
    case("no trainer", ACCEPTED, trainer={}),
    case(
        "a manager twice",
        invalid('spec.runtimePatches[1]: Duplicate value: {"manager":"a.io/b"}'),
        since=(2, 2),
        runtimePatches=[{"manager": "a.io/b"}, {"manager": "a.io/b"}],
    ),
    case(
        "no manager",
        invalid_schema("spec.runtimePatches[0].manager: Required value"),
        since=(2, 2),
        runtimePatches=[{}],
    ),
    case(
        "17 managers",
        invalid_schema("spec.runtimePatches: Too many: 17: must have at most 16 items"),
        since=(2, 2),
        runtimePatches=[{"manager": f"a.io/{number}"} for number in range(17)],
    ),
    case(
        "a negative grace period",
        invalid(
            f"{POD}.terminationGracePeriodSeconds: Invalid value: -1: {POD}.terminationGracePeriodSeconds in body "
            "should be greater than or equal to 0"
        ),
        since=(2, 3),
        runtimePatches=pod(terminationGracePeriodSeconds=-1),
    ),
    case(
        "a volume mounted twice",
        invalid(f'{POD}.containers[0].volumeMounts[1]: Duplicate value: {{"name":"a"}}'),
        since=(2, 2),
        runtimePatches=pod(
            containers=[{"name": "node", "volumeMounts": [{"name": "a", "mountPath": path} for path in ("/x", "/y")]}]
        ),
    ),
    case(
        "a container without a name",
        invalid_schema(f"{POD}.containers[0].name: Required value"),
        since=(2, 2),
        runtimePatches=pod(containers=[{"env": []}]),
    ),
    case("a volume without a name", ACCEPTED, since=(2, 2), runtimePatches=pod(volumes=[{"emptyDir": {}}])),
]
AFFINITY = case(
    "affinity without terms",
    invalid_schema(
        f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid "
        f'value: "null": {POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.'
        'nodeSelectorTerms in body must be of type array: "null"'
    ),
    since=(2, 2),
    runtimePatches=pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
)


def test_limits_of_the_schema(client, namespace, target):
    """A value beyond the limits and rules of the CRD gets 422. A value within them is accepted."""
    found, expected = dry_run_cases(client, namespace, target.trainer, LIMITS)
    assert found == expected


@pytest.mark.since("2.2")
def test_affinity_without_terms(client, namespace, target):
    """An affinity without terms in a patch gets 422."""
    found, expected = dry_run_cases(client, namespace, target.trainer, [AFFINITY])
    assert found == expected


@pytest.mark.since("2.3")
def test_all_problems_of_the_schema(client, namespace):
    """The schema reports all its problems at once, in any order. CEL rules and the webhook do not run then."""
    job = case(
        "", ACCEPTED, runtimeRef={}, trainer={"env": [{"name": "A"}] * 2, "image": "x" * 501}, managedBy="foo"
    ).job
    response = client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")
    problems = [
        "spec.runtimeRef.name: Required value",
        f"spec.trainer.image: {LONG} 500 bytes",
        'spec.trainer.env[1]: Duplicate value: {"name":"A"}',
    ]
    found = ResponseSummary.from_response(response)
    assert replace(found, message=remove_problems(found.message, problems)) == invalid(
        f"[{UNCHECKED.removeprefix(', ')}"
    )
    causes = {(cause["field"], cause["reason"]) for cause in response.body["details"]["causes"]}
    assert ("spec.runtimeRef.name", "FieldValueRequired") in causes
    assert ("spec.trainer.env[1]", "FieldValueDuplicate") in causes


def test_cel_rules_run_before_the_webhook(client, namespace):
    """The schema's CEL rules run before the webhook: a violation gets 422 even if the webhook would respond 403."""
    job = case("", ACCEPTED, runtimeRef={"name": "nope"}, managedBy="foo").job
    found = ResponseSummary.from_response(client.request("POST", path_of("TrainJob", namespace), job, dryRun="All"))
    assert found == invalid(f'spec.managedBy: Invalid value: "foo": {MANAGED_BY}')

"""Creation requests that the Trainer's webhooks or the CRD's schema reject, with the exact messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.admission_cases import (
    ACCEPTED,
    TORCH,
    VALIDATOR,
    AdmissionCase,
    ResponseSummary,
    case,
    denied,
    dry_run_cases,
    invalid,
    invalid_schema,
    remove_problems,
    runtime_patches,
    trainer_case,
)
from tests.support.kubernetes_client import path_of

TUNE = {"runtimeRef": {"name": "torchtune-llama3.2-1b"}}
ENVS = "must not have envs for the dataset-initializer, model-initializer, node containers"
URI = "storageUri may be empty, or it must be a valid URI (scheme://...)"
DOMAIN = 'must be a domain-prefixed path (such as "acme.io/foo")'
PATH = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
NO_JOB = "must not have replicated job that doesn't exist in the runtime job template"
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def variables(*names):
    return [{"name": name, "value": "1"} for name in names]


def format_variables(names):
    return ",".join(f'{{"name":"{name}","value":"1"}}' for name in names)


def missing_runtime(name, kind="ClusterTrainingRuntime", field="RuntimeRef"):
    ref = f'{{"name":"{name}","apiGroup":"trainer.kubeflow.org","kind":"{kind}"}}'
    needed = f"specified {kind[0].lower()}{kind[1:]} must be created before the TrainJob is created"
    return denied(f'spec.{field}: Invalid value: {ref}: {kind}.trainer.kubeflow.org "{name}" not found: {needed}')


def missing_initializer(kind):
    text = f"must have {kind}-initializer job when trainJob is configured with input {kind}Config"
    return f"spec.runtimeRef: Invalid value: {TORCH}: {text}"


def pod_with_container(name, env=None):
    return {"containers": [{"name": name, "env": variables("A") if env is None else env}]}


def overrides(spec, job="node"):
    return [{"targetJobs": [{"name": job}], "spec": spec}]


def format_patch(job, pod, manager="example.org/a"):
    spec = f'[{{"name":"{job}","template":{{"spec":{{"template":{{"spec":{pod}}}}}}}}}]'
    spec = f'{{"template":{{"spec":{{"replicatedJobs":{spec}}}}}}}'
    return f'[{{"manager":"{manager}","time":"now","trainingRuntimeSpec":{spec}}}]'


def denied_environment(name, job="node", manager="example.org/a"):
    pod = f'{{"containers":[{{"name":"{name}","env":[{format_variables(["A"])}]}}]}}'
    return denied(f"spec.runtimePatches: Invalid value: {format_patch(job, pod, manager)}: {ENVS}")


ALL_RESERVED = ("PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
RESERVED = "must not have reserved envs, invalid envs configured"
RUNTIMES = [
    case("a missing runtime", missing_runtime("nope"), runtimeRef={"name": "nope"}),
    case(
        "a missing runtime of the namespace",
        missing_runtime("nope", "TrainingRuntime", "runtimeRef"),
        runtimeRef={"name": "nope", "kind": "TrainingRuntime"},
    ),
    case(
        "another kind", denied("unsupported runtime: Foo.trainer.kubeflow.org"), runtimeRef={"name": "x", "kind": "Foo"}
    ),
    case(
        "another group",
        denied("unsupported runtime: ClusterTrainingRuntime.example.org"),
        runtimeRef={"name": "torch-distributed", "apiGroup": "example.org"},
    ),
    case(
        "no group",
        denied("unsupported runtime: ClusterTrainingRuntime"),
        runtimeRef={"name": "torch-distributed", "apiGroup": ""},
    ),
    AdmissionCase(
        "no spec",
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "job"}},
        denied("unsupported runtime: "),
    ),
    case("an empty spec", invalid_schema("spec.runtimeRef: Required value"), runtimeRef=None),
    case("a reference without a name", invalid_schema("spec.runtimeRef.name: Required value"), runtimeRef={}),
    case(
        "an empty name",
        invalid(
            'spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should be at least 1 chars long'
        ),
        runtimeRef={"name": ""},
    ),
]
ENVIRONMENT = [
    trainer_case(
        "a variable of torchrun",
        denied(f"spec.trainer.env: Invalid value: [{format_variables(['PET_NNODES'])}]: {RESERVED}: [PET_NNODES]"),
        since=(2, 2),
        env=variables("PET_NNODES"),
    ),
    trainer_case("a variable of torchrun, 2.1", ACCEPTED, before=(2, 2), env=variables("PET_NNODES")),
    trainer_case(
        "all of torchrun's, with numProcPerNode",
        denied(
            f"spec.trainer.env: Invalid value: [{format_variables(['A', *ALL_RESERVED])}]: {RESERVED}: "
            f"[{' '.join(sorted(ALL_RESERVED))}]"
        ),
        env=variables("A", *ALL_RESERVED),
        numProcPerNode=1,
    ),
    trainer_case(
        "variables with similar names",
        ACCEPTED,
        env=variables("PET_FOO", "MASTER_ADDR", "RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX", "pet_nnodes"),
        numProcPerNode=1,
    ),
    trainer_case(
        "a duplicate name", invalid('spec.trainer.env[1]: Duplicate value: {"name":"A"}'), env=variables("A", "A")
    ),
    trainer_case("no name", invalid_schema("spec.trainer.env[0].name: Required value"), env=[{"value": "x"}]),
    trainer_case("invalid names", ACCEPTED, env=variables("", "a b=c")),
    trainer_case(
        "a Secret without a key",
        invalid_schema("spec.trainer.env[0].valueFrom.secretKeyRef.key: Required value"),
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}],
    ),
]
INITIALIZERS = [
    case("a dataset for torch-distributed", denied(missing_initializer("dataset")), initializer={"dataset": {}}),
    case(
        "a model for torch-distributed",
        denied(missing_initializer("model")),
        initializer={"model": {"storageUri": "hf://a/b"}},
    ),
    case(
        "both for torch-distributed",
        denied(f"[{missing_initializer('dataset')}, {missing_initializer('model')}]"),
        initializer={"dataset": {}, "model": {}},
    ),
    case("neither", ACCEPTED, initializer={}),
    *(
        case(
            f"storageUri {uri!r}",
            invalid(f"spec.initializer.{kind}.storageUri: Invalid value: {text}: {URI}"),
            since=(2, 3),
            initializer={kind: {"storageUri": uri}},
            **TUNE,
        )
        for kind, uri, text in (
            ("dataset", "no-scheme", '"no-scheme"'),
            ("model", "a/b", '"a/b"'),
            ("dataset", "hf://", '"hf://"'),
            ("dataset", "3x://a", '"3x://a"'),
            ("dataset", " hf://a", '" hf://a"'),
            ("dataset", "hf://a\nb", '"hf://a\\nb"'),
        )
    ),
    *(
        case(f"storageUri {uri!r}, 2.2", ACCEPTED, before=(2, 3), initializer={"dataset": {"storageUri": uri}}, **TUNE)
        for uri in ("no-scheme", "hf://", " hf://a")
    ),
    *(
        case(f"storageUri {uri!r}", ACCEPTED, initializer={"dataset": {"storageUri": uri}}, **TUNE)
        for uri in ("", "ftp://x", "s3+x.y-z://a b")
    ),
]
PATCHES = [
    case("no patch", ACCEPTED, since=(2, 2), runtimePatches=[]),
    case("a patch of nothing", ACCEPTED, since=(2, 2), runtimePatches=[{"manager": "a.io/b"}]),
    *(
        case(
            f"manager {manager!r}",
            denied(f'spec.runtimePatches.manager: Invalid value: "{part}": {why}'),
            since=(2, 2),
            runtimePatches=[{"manager": manager}],
        )
        for manager, part, why in (
            ("notadomain", "notadomain", DOMAIN),
            ("a/", "a/", DOMAIN),
            ("/b", "/b", DOMAIN),
            ("Acme.io/x", "Acme.io", SUBDOMAIN),
            ("acme.io/x y", "x y", PATH),
        )
    ),
    *(
        case(f"manager {manager!r}", ACCEPTED, since=(2, 2), runtimePatches=[{"manager": manager}])
        for manager in ("a.io/b/c", "localhost/x")
    ),
    case(
        "env of node",
        denied_environment("node"),
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod_with_container("node")),
    ),
    case(
        "env of another container",
        ACCEPTED,
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod_with_container("other")),
    ),
    case(
        "an empty env of node",
        ACCEPTED,
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod_with_container("node", env=[])),
    ),
    case(
        "env of an initializer",
        denied_environment("dataset-initializer", "dataset-initializer"),
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod_with_container("dataset-initializer"), job="dataset-initializer"),
        **TUNE,
    ),
    case(
        "a missing container",
        ACCEPTED,
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod_with_container("other", env=[])),
    ),
    case("a missing job", ACCEPTED, since=(2, 3), runtimePatches=runtime_patches(job="worker")),
    case(
        "a missing job, 2.2",
        denied(f"spec.runtimePatches: Invalid value: {format_patch('worker', '{}')}: {NO_JOB}"),
        since=(2, 2),
        before=(2, 3),
        runtimePatches=runtime_patches(job="worker"),
    ),
]
OVERRIDES = [
    case("overrides", ACCEPTED, podTemplateOverrides=overrides({"nodeSelector": {"a": "b"}})),
    case("overrides for no job", ACCEPTED, podTemplateOverrides=[{"targetJobs": [], "spec": {}}]),
    case(
        "overrides for a missing job",
        denied(
            'spec.podTemplateOverrides: Invalid value: [{"targetJobs":[{"name":"worker"}],"spec":{}}]: '
            "must not have targetJob that doesn't exist in the runtime job template"
        ),
        podTemplateOverrides=overrides({}, job="worker"),
    ),
    case(
        "overrides for a missing container",
        ACCEPTED,
        podTemplateOverrides=overrides(pod_with_container("other", env=[])),
    ),
    case(
        "overrides of env",
        denied(
            'spec.podTemplateOverrides: Invalid value: [{"targetJobs":[{"name":"node"}],"spec":{"containers":'
            f'[{{"name":"node","env":[{format_variables(["A"])}]}}]}}}}]: {ENVS}'
        ),
        podTemplateOverrides=overrides(pod_with_container("node")),
    ),
    case(
        "overrides without target",
        invalid_schema("spec.podTemplateOverrides[0].targetJobs: Required value"),
        podTemplateOverrides=[{"spec": {}}],
    ),
]


@pytest.mark.parametrize(
    "cases", [RUNTIMES, ENVIRONMENT, INITIALIZERS], ids=["runtimes", "environment", "initializers"]
)
def test_trainjobs(client, namespace, target, cases):
    """A missing runtime, a reserved torchrun variable or an initializer without its job is rejected."""
    found, expected = dry_run_cases(client, namespace, target.trainer, cases)
    assert found == expected


@pytest.mark.since("2.2")
def test_patches(client, namespace, target):
    """A runtimePatch with an invalid manager or with variables is rejected; a missing target is accepted."""
    found, expected = dry_run_cases(client, namespace, target.trainer, PATCHES)
    assert found == expected


@pytest.mark.before("2.2")
def test_overrides(client, namespace, target):
    """podTemplateOverrides with variables or for a missing job are rejected; a missing container is accepted."""
    found, expected = dry_run_cases(client, namespace, target.trainer, OVERRIDES)
    assert found == expected


@pytest.mark.since("2.2")
def test_all_problems_at_once(client, namespace):
    """The webhook reports all problems of variables, initializers and patches in one response, in any order."""
    job = case(
        "",
        ACCEPTED,
        trainer={"env": variables("PET_NNODES")},
        initializer={"dataset": {}},
        runtimePatches=runtime_patches(pod=pod_with_container("node"), manager="x"),
    ).job
    problems = [
        f"spec.trainer.env: Invalid value: [{format_variables(['PET_NNODES'])}]: {RESERVED}: [PET_NNODES]",
        missing_initializer("dataset"),
        f'spec.runtimePatches.manager: Invalid value: "x": {DOMAIN}',
        denied_environment("node", manager="x").message.removeprefix(VALIDATOR),
    ]
    found = ResponseSummary.from_response(client.request("POST", path_of("TrainJob", namespace), job, dryRun="All"))
    assert replace(found, message=remove_problems(found.message, problems)) == denied("[]")

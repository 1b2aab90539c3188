"""Tests of the checks whether a TrainJob fits its runtime.

The checks use the runtime's description and the TrainJob that would be sent, in every dialect.
"""

from __future__ import annotations

import dataclasses

import pytest

from trainjob import CustomTrainerContainer, LoraConfig, Placement, TorchTuneConfig, TrainJob
from trainjob.lifecycle.runtime_checks import find_problems, find_warnings
from trainjob.manifest import Dialect, build_trainjob, to_trainjob
from trainjob.spec import FineTune, Runtime
from trainjob.status.runtime_description import describe_runtime
from trainjob_local.runtimes import stock_runtimes

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
STOCK = {item["metadata"]["name"]: describe_runtime(item) for item in stock_runtimes()}


def build_runtime(*steps, policy="torch", framework=""):
    """Return the description of a runtime with these steps: (replicated job, role, container)."""
    jobs = [
        {
            "name": name,
            "template": {
                "metadata": {"labels": {STEP: role} if role else {}},
                "spec": {"template": {"spec": {"containers": [{"name": container, "image": "i:1"}]}}},
            },
        }
        for name, role, container in steps
    ]
    marks = {"trainer.kubeflow.org/framework": framework}
    spec = {"mlPolicy": {"numNodes": 1, policy: {}}, "template": {"spec": {"replicatedJobs": jobs}}}
    return describe_runtime({"metadata": {"name": "own", "labels": marks}, "spec": spec})


def find_broken_rules(request, runtime, dialect=Dialect.V2_2):
    """Check a request against a runtime, and return the broken rules and the warnings."""
    job = to_trainjob(request)
    manifest = build_trainjob(job, name="job", namespace="ml", dialect=dialect)
    rules = [problem.allowed for problem in find_problems(job, manifest, runtime)]
    return rules, list(find_warnings(manifest, runtime))


MPI = build_runtime(("node", "", "node"), ("launcher", "trainer", "node"), policy="mpi", framework="deepspeed")
SOLO = build_runtime(("solo", "trainer", "node"))
MAIN = build_runtime(("node", "trainer", "main"))


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("runtime", "rule"),
    [
        (
            SOLO,
            "it has no replicated job node, which workspace, volumes, placement or runtime_patches need; it has solo",
        ),
        (MAIN, "its replicated job node has no container node; it has main"),
        (MPI, "its trainer is the replicated job launcher, which would not have the workspace and the volumes"),
        (
            build_runtime(),
            "it has no replicated job node, which workspace, volumes, placement or runtime_patches need; it has none",
        ),
    ],
    ids=["another job", "another container", "mpi", "empty"],
)
def test_a_workspace_needs_the_replicated_job_and_container_that_mount_it(runtime, rule, dialect):
    found, _ = find_broken_rules(TrainJob(workspace="w"), runtime, dialect)
    assert any(found_rule.startswith(rule) for found_rule in found), found


@pytest.mark.parametrize("dialect", Dialect)
def test_a_job_that_fits_its_runtime_has_no_problems(dialect):
    both = build_runtime(("node", "trainer", "node"))
    for request in (
        TrainJob(workspace="w", placement=Placement(node_selector={"a": "b"})),
        TrainJob(trainer=CustomTrainerContainer(command=("true",), env={"A": "1"})),
        FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w"),
    ):
        assert find_broken_rules(request, both, dialect) == ([], [])
    assert find_broken_rules(TrainJob(placement=Placement(service_account_name="a")), MPI, dialect) == ([], [])


@pytest.mark.parametrize("name", [name for name in STOCK if name.startswith("torchtune-")])
def test_a_fine_tuning_fits_its_stock_runtime(name):
    config = TorchTuneConfig(peft_config=LoraConfig(), resources_per_node={"gpu": 2})
    step = FineTune(
        model=name.removeprefix("torchtune-"), config=config, dataset="hf://o/n", model_initializer="hf://o/n"
    )
    assert find_broken_rules(step, STOCK[name]) == ([], [])


def test_gpus_of_another_kind_than_the_runtimes_cause_a_warning():
    trainer = CustomTrainerContainer(image="i:1", resources_per_node={"amd.com/gpu": 1})
    runtime = Runtime(name="torchtune-llama3.2-1b")
    found, [warning] = find_broken_rules(TrainJob(trainer=trainer, runtime=runtime), STOCK["torchtune-llama3.2-1b"])
    assert found == []
    assert "requests nvidia.com/gpu, which resources_per_node does not set" in warning


def test_claims_that_the_trainer_would_drop_are_refused():
    [trainer] = STOCK["torch-distributed"].steps
    with_claims = dataclasses.replace(
        STOCK["torch-distributed"], steps=(dataclasses.replace(trainer, claims=("gpus",)),)
    )
    job = TrainJob(trainer=CustomTrainerContainer(command=("true",), resources_per_node={"cpu": 1}))
    [rule], _ = find_broken_rules(job, with_claims)
    assert rule.startswith("its resource claims (gpus) would be dropped")
    assert find_broken_rules(TrainJob(), with_claims) == ([], [])


def test_a_gang_with_initializers_is_refused_because_it_can_never_start():
    job = TrainJob(trainer=CustomTrainerContainer(command=("true",)))
    with_initializers = dataclasses.replace(STOCK["torchtune-llama3.2-1b"], gang="volcano")
    [rule], _ = find_broken_rules(job, with_initializers)
    assert rule.startswith("its gang (volcano) starts the pods of all its steps together, but dataset-initializer, ")
    assert find_broken_rules(job, dataclasses.replace(STOCK["torch-distributed"], gang="volcano")) == ([], [])

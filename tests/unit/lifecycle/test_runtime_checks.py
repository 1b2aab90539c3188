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
STOCK = {one["metadata"]["name"]: describe_runtime(one) for one in stock_runtimes()}


def describe_runtime(*steps, policy="torch", framework=""):
    """Steps are (replicated job, role, container)."""
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
    job = to_trainjob(request)
    manifest = build_trainjob(job, name="job", namespace="ml", dialect=dialect)
    return [problem.allowed for problem in find_problems(job, manifest, runtime)], list(
        find_warnings(manifest, runtime)
    )


MPI = describe_runtime(("node", "", "node"), ("launcher", "trainer", "node"), policy="mpi", framework="deepspeed")
SOLO = describe_runtime(("solo", "trainer", "node"))
MAIN = describe_runtime(("node", "trainer", "main"))


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("runtime", "rule"),
    [
        (SOLO, "it has no replicated job node, which workspace, volumes or placement are to change; it has solo"),
        (MAIN, "its replicated job node has no container node; it has main"),
        (MPI, "its trainer is the replicated job launcher, where workspace and volumes would be missing"),
        (
            describe_runtime(),
            "it has no replicated job node, which workspace, volumes or placement are to change; it has none",
        ),
    ],
    ids=["another job", "another container", "mpi", "empty"],
)
def test_a_workspace_needs_what_it_is_mounted_in(runtime, rule, dialect):
    found, _ = find_broken_rules(TrainJob(workspace="w"), runtime, dialect)
    assert any(one.startswith(rule) for one in found), found


@pytest.mark.parametrize("dialect", Dialect)
def test_what_fits_is_let_through(dialect):
    both = describe_runtime(("node", "trainer", "node"))
    for request in (
        TrainJob(workspace="w", placement=Placement(node_selector={"a": "b"})),
        TrainJob(trainer=CustomTrainerContainer(command=("true",), env={"A": "1"})),
        FineTune(model="llama3.2-1b", workspace="w"),
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


def test_gpus_of_another_kind_are_doubted():
    trainer = CustomTrainerContainer(image="i:1", resources_per_node={"amd.com/gpu": 1})
    runtime = Runtime(name="torchtune-llama3.2-1b")
    found, [doubt] = find_broken_rules(TrainJob(trainer=trainer, runtime=runtime), STOCK["torchtune-llama3.2-1b"])
    assert found == []
    assert "brings nvidia.com/gpu, of which resources_per_node says nothing" in doubt


def test_a_gang_with_initializers_is_never_whole():
    job = TrainJob(trainer=CustomTrainerContainer(command=("true",)))
    fetching = dataclasses.replace(STOCK["torchtune-llama3.2-1b"], gang="volcano")
    [rule], _ = find_broken_rules(job, fetching)
    assert rule.startswith("its gang (volcano) waits for the pods of all its steps at once, and dataset-initializer, ")
    assert find_broken_rules(job, dataclasses.replace(STOCK["torch-distributed"], gang="volcano")) == ([], [])

"""Tests of the description of training runtimes with any content."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trainjob.status.runtime_description import RuntimeStep, describe_runtime
from trainjob_local.runtimes import stock_runtimes

ROLE = "trainer.kubeflow.org/trainjob-ancestor-step"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELD_NAMES = (
    "metadata",
    "labels",
    "spec",
    "mlPolicy",
    "podGroupPolicy",
    "template",
    "replicatedJobs",
    "containers",
    "name",
)


@st.composite
def damaged_runtime(draw):
    """Return a stock runtime in which all fields of one name have random values."""
    text = json.dumps(draw(st.sampled_from(stock_runtimes())))
    place = draw(st.sampled_from(FIELD_NAMES))
    return json.loads(text, object_hook=lambda table: {**table, place: draw(JSON)} if place in table else table)


def test_the_stock_torchtune_runtime_is_described():
    runtime = next(each for each in stock_runtimes() if each["metadata"]["name"] == "torchtune-llama3.2-1b")
    found = describe_runtime(runtime)
    assert (found.name, found.kind, found.framework, found.policy) == (
        "torchtune-llama3.2-1b",
        "ClusterTrainingRuntime",
        "torchtune",
        "torch",
    )
    assert (found.num_nodes, found.deprecated, found.gang) == (1, False, "")
    assert found.initializers == ("dataset-initializer", "model-initializer")
    image = "ghcr.io/kubeflow/trainer/torchtune-trainer:v2.3.0"
    assert found.trainer == RuntimeStep("node", "trainer", ("node",), image, {"nvidia.com/gpu": "2"})
    assert json.loads(json.dumps(found.to_dict()))["steps"][2]["image"] == image


def test_optional_fields_are_described():
    pod = {
        "initContainers": [{"name": "warm-up", "image": "i:0"}],
        "containers": [
            {"name": "sidecar", "image": "s:1"},
            {"name": "node", "image": "i:1", "resources": {"requests": {"cpu": 2}, "limits": {"amd.com/gpu": 4}}},
        ],
    }
    jobs = [
        {"name": "node", "template": {"spec": {"template": {"spec": pod}}}},
        {
            "name": "launcher",
            "template": {"metadata": {"labels": {ROLE: "trainer"}}, "spec": {"template": {"spec": pod}}},
        },
    ]
    found = describe_runtime(
        {
            "metadata": {
                "name": "own",
                "namespace": "ml",
                "labels": {"trainer.kubeflow.org/support": "deprecated"},
            },
            "spec": {
                "mlPolicy": {"numNodes": 3, "mpi": {"numProcPerNode": 2}},
                "podGroupPolicy": {"volcano": {}},
                "template": {"spec": {"replicatedJobs": jobs}},
            },
        },
        "TrainingRuntime",
    )
    assert (found.kind, found.namespace, found.policy, found.num_nodes) == ("TrainingRuntime", "ml", "mpi", 3)
    assert (found.gang, found.deprecated, found.framework) == ("volcano", True, "")
    assert [step.role for step in found.steps] == ["", "trainer"]
    assert found.trainer.name == "launcher"
    assert found.trainer.containers == ("warm-up", "sidecar", "node")
    assert (found.trainer.image, found.trainer.resources) == ("i:1", {"cpu": "2", "amd.com/gpu": "4"})


@given(damaged_runtime() | JSON)
def test_no_content_of_a_runtime_raises_an_exception(runtime):
    json.dumps(describe_runtime(runtime).to_dict())

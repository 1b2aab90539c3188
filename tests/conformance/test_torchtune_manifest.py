"""The project's TorchTune command for a workspace equals the command that the Trainer builds for its runtimes."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import TORCHTUNE_RUNTIMES, create_jobsets, find_container
from tests.conformance.request_matrix import LARGE_RUNTIME, METHODS
from tests.conformance.runtimes import create_runtime
from tests.support.kubernetes_client import Object
from trainjob import FineTune, TorchTuneConfig
from trainjob.manifest import Dialect, build_trainjob, to_trainjob

SIZES = {
    "1-gpu": {"resources_per_node": {"gpu": 1}},
    "2-gpus": {"resources_per_node": {"gpu": 2}},
    "1-process": {"num_proc_per_node": 1, "resources_per_node": {"gpu": 1}},
    "2-processes": {"num_proc_per_node": 2, "resources_per_node": {"gpu": 2}},
    "8-gpus": {"resources_per_node": {"gpu": 8, "cpu": 16}},
}
LARGE_SIZES = {"8-gpus": SIZES["8-gpus"], "2-nodes": {"num_nodes": 2, "resources_per_node": {"gpu": 8}}}
# Llama's QLoRA needs one process, Qwen has none, and 70B has no LoRA on several nodes.
SINGLE_ONLY, NONE = {"llama3.2-1b", "llama3.2-3b"}, {"qwen2.5-1.5b"}


def has_recipe(model, method, size):
    if size == "2-nodes":
        return method == "full"
    return method != "qlora" or (model not in NONE and (model not in SINGLE_ONLY or size in ("1-gpu", "1-process")))


def parse_command(command: list[str]) -> Object:
    """Return recipe, configuration and arguments of a TorchTune command line.

    `endpoint` is whether it has a rendezvous endpoint.
    """
    assert command[:2] == ["tune", "run"]
    endpoint, rest = command[2].startswith("--rdzv_endpoint="), command[3 if command[2].startswith("--") else 2 :]
    assert rest[1] == "--config"
    return {"recipe": rest[0], "config": rest[2], "endpoint": endpoint, "arguments": rest[3:]}


def trainer_command(jobset: Object) -> Object:
    found = find_container(jobset)
    return parse_command([*found["command"], *found["args"]])


@pytest.mark.parametrize("model", [*TORCHTUNE_RUNTIMES, "llama3.3-70b"])
def test_the_same_command(client, namespace, target, model):
    """Recipe, configuration, paths and arguments are the same and in the same order for each size and method."""
    dialect = Dialect.V2_2 if target.trainer >= (2, 2) else Dialect.V2_1
    runtime = {}
    if model == "llama3.3-70b":
        spec = client.get("ClusterTrainingRuntime", None, TORCHTUNE_RUNTIMES["llama3.2-3b"])["spec"]
        create_runtime(client, namespace, spec, LARGE_RUNTIME.name)
        runtime = {"runtime": LARGE_RUNTIME}
    ours, jobs = {}, {}
    for size, values in (LARGE_SIZES if runtime else SIZES).items():
        for method, peft in METHODS.items():
            if not has_recipe(model, method, size):
                continue
            name, config = f"{method}-{size}", TorchTuneConfig(epochs=2, seed=3, peft_config=peft, **values)
            fetching = FineTune(model=model, config=config, dataset="hf://organization/name/data", **runtime)
            jobs[name] = build_trainjob(to_trainjob(fetching), name=name, namespace=namespace, dialect=dialect)
            split = FineTune(model=model, config=config, workspace="claim")
            trainer = build_trainjob(to_trainjob(split), name=name, namespace=namespace, dialect=dialect)["spec"][
                "trainer"
            ]
            ours[name] = parse_command([*trainer["command"], *trainer["args"]])
    assert {name: trainer_command(jobset) for name, jobset in create_jobsets(client, namespace, jobs).items()} == ours

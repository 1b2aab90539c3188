"""The command that the Trainer builds for TorchTune: recipe, configuration, endpoint, and kept arguments."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    TUNE,
    create_jobsets,
    create_training_only_runtime,
    find_container,
    gpu_resources,
    read_environment,
)
from tests.support.kubernetes_client import Object
from tests.support.trainjobs import list_pods, pod_patch, train_job

LLAMA = TORCHTUNE_RUNTIMES["llama3.2-1b"]
RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
LORA, QLORA, DORA = (
    ["model.lora_attn_modules=[q_proj,v_proj]"],
    ["model.lora_attn_modules=[q_proj,v_proj]", "model.quantize_base=True"],
    ["model.lora_attn_modules=[q_proj,v_proj]", "model.use_dora=True"],
)
SINGLE = {
    "full": ("full_finetune_single_device", "_full_single_device"),
    "lora": ("lora_finetune_single_device", "_lora_single_device"),
    "qlora": ("lora_finetune_single_device", "_qlora_single_device"),
}
SEVERAL = {
    "full": ("full_finetune_distributed", "_full"),
    "lora": ("lora_finetune_distributed", "_lora"),
    "qlora": ("lora_finetune_distributed", "_qlora"),
}
MULTINODE = ("full_finetune_distributed", "_full_multinode")
# Case: fields of spec.trainer, recipes, whether the processes get a rendezvous endpoint. The runtime has two GPUs.
# Trainer 2.1 panics if there is numProcPerNode without numNodes.
SIZES = {
    "the-runtimes": ({}, SEVERAL, True),
    "1-gpu": ({"resourcesPerNode": gpu_resources(1)}, SINGLE, False),
    "2-gpus": ({"resourcesPerNode": gpu_resources(2)}, SEVERAL, True),
    "8-gpus": ({"resourcesPerNode": gpu_resources(8)}, SEVERAL, True),
    "1-process": ({"numNodes": 1, "numProcPerNode": 1}, SINGLE, False),
    "2-processes": ({"numNodes": 1, "numProcPerNode": 2}, SEVERAL, True),
    "1-process-2-gpus": ({"numNodes": 1, "numProcPerNode": 1, "resourcesPerNode": gpu_resources(2)}, SINGLE, False),
    "2-processes-1-gpu": ({"numNodes": 1, "numProcPerNode": 2, "resourcesPerNode": gpu_resources(1)}, SINGLE, True),
    "gpu-limit-only": ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}, SINGLE, False),
    "other-gpus": ({"resourcesPerNode": {"limits": {"amd.com/gpu": "2"}}}, SEVERAL, True),
    "1-cpu": ({"resourcesPerNode": {"requests": {"cpu": "1"}}}, SINGLE, False),
    "1500m-cpu": ({"resourcesPerNode": {"requests": {"cpu": "1500m"}}}, SEVERAL, True),
    "memory": ({"resourcesPerNode": {"requests": {"memory": "1Gi"}}}, SINGLE, False),
    "1-mig": ({"resourcesPerNode": {"limits": {"nvidia.com/mig-1g.5gb": "2"}}}, SINGLE, False),
    "mig-4-cpus": ({"resourcesPerNode": {"limits": {"nvidia.com/mig-1g.5gb": "1", "cpu": "4"}}}, SEVERAL, True),
}
METHODS = {
    "full": (["epochs=1"], "full"),
    "lora": (LORA, "lora"),
    "dora": (DORA, "lora"),
    "qlora": (QLORA, "qlora"),
    "qlora-alone": (["model.quantize_base=True"], "qlora"),
    "dora-and-quantized": ([*QLORA, "model.use_dora=True"], "lora"),
}
TOKENIZER = {
    TORCHTUNE_RUNTIMES["llama3.2-1b"]: ["tokenizer.path=/workspace/model/original/tokenizer.model"],
    TORCHTUNE_RUNTIMES["llama3.2-3b"]: ["tokenizer.path=/workspace/model/original/tokenizer.model"],
    TORCHTUNE_RUNTIMES["qwen2.5-1.5b"]: [
        "tokenizer.path=/workspace/model/vocab.json",
        "tokenizer.merges_file=/workspace/model/merges.txt",
    ],
}
CONFIG = {
    TORCHTUNE_RUNTIMES["llama3.2-1b"]: "llama3_2/1B",
    TORCHTUNE_RUNTIMES["llama3.2-3b"]: "llama3_2/3B",
    TORCHTUNE_RUNTIMES["qwen2.5-1.5b"]: "qwen2_5/1.5B",
}


def torchtune_trainer(args=None, **trainer) -> Object:
    """Return the trainer of a TrainJob for which the Trainer builds the command."""
    return {"command": list(TUNE), **({"args": list(args)} if args else {}), **trainer}


def expected_command(
    name: str, recipe: tuple[str, str], config: str, stock_arguments: list[str], *, rendezvous: bool
) -> list[str]:
    """Return the whole expected command."""
    endpoint = [f"--rdzv_endpoint={name}-node-0-0.{name}:29500"] if rendezvous else []
    return [*TUNE, *endpoint, recipe[0], "--config", config + recipe[1], *stock_arguments]


def stock_arguments(stock: str) -> list[str]:
    """Return the arguments of a stock runtime's command that the Trainer keeps."""
    return ["output_dir=/workspace/output", *TOKENIZER[stock], "checkpointer.checkpoint_dir=/workspace/model"]


def composed_commands(client, namespace, jobs):
    return {name: find_container(jobset)["command"] for name, jobset in create_jobsets(client, namespace, jobs).items()}


@pytest.mark.parametrize("stock", TORCHTUNE_RUNTIMES.values())
def test_commands_on_stock_runtimes(client, namespace, stock):
    """On a stock runtime the Trainer selects recipe and configuration, keeps the paths and drops the dataset."""
    jobs, expected = {}, {}
    for size in ("the-runtimes", "1-gpu", "2-gpus", "1-process"):
        for method in ("full", "lora", "dora", "qlora"):
            (trainer, recipes, rendezvous), (args, kind) = SIZES[size], METHODS[method]
            if kind == "qlora" and (recipes is SEVERAL or "qwen" in stock):
                continue  # rejected, see test_torchtune_refusals
            name = f"{method}-{size}"
            jobs[name] = train_job(runtime=stock, trainer=torchtune_trainer(args, **trainer))
            expected[name] = expected_command(
                name, recipes[kind], CONFIG[stock], stock_arguments(stock), rendezvous=rendezvous
            )
    assert composed_commands(client, namespace, jobs) == expected


@pytest.mark.parametrize("method", METHODS)
def test_recipes_by_size(client, namespace, method):
    """One process or GPU gets a single-device recipe, more get a distributed one. MIG slices do not count as GPUs."""
    runtime = create_training_only_runtime(client, namespace, TORCHTUNE_RUNTIMES["llama3.2-3b"], "any-llama3.3-70b")
    args, kind = METHODS[method]
    jobs = {
        name: train_job(trainer=torchtune_trainer(args, **trainer), **runtime)
        for name, (trainer, _, _) in with_job_names(SIZES)
    }
    kept = stock_arguments(TORCHTUNE_RUNTIMES["llama3.2-3b"])
    assert composed_commands(client, namespace, jobs) == {
        name: expected_command(name, recipes[kind], "llama3_3/70B", kept, rendezvous=rendezvous)
        for name, (_, recipes, rendezvous) in with_job_names(SIZES)
    }


def with_job_names(sizes):
    """Return the sizes with names that start with a letter, as a TrainJob's must."""
    return [(f"with-{name}", size) for name, size in sizes.items()]


def test_recipes_by_nodes(client, namespace):
    """Several nodes get the multinode configuration, which only llama3.3-70b has. 0 nodes get the distributed one."""
    runtime = create_training_only_runtime(client, namespace, TORCHTUNE_RUNTIMES["llama3.2-3b"], "any-llama3.3-70b")
    one = {"resourcesPerNode": gpu_resources(1)}
    jobs = {
        "two": train_job(trainer=torchtune_trainer(["epochs=1"], numNodes=2), **runtime),
        "two-with-a-gpu": train_job(trainer=torchtune_trainer(numNodes=2, **one), **runtime),
        "two-with-a-process": train_job(trainer=torchtune_trainer(numNodes=2, numProcPerNode=1), **runtime),
        "none": train_job(trainer=torchtune_trainer(LORA, numNodes=0, **one), **runtime),
    }
    kept = stock_arguments(TORCHTUNE_RUNTIMES["llama3.2-3b"])
    expected = {name: expected_command(name, MULTINODE, "llama3_3/70B", kept, rendezvous=True) for name in jobs}
    expected["none"] = expected_command("none", SEVERAL["full"], "llama3_3/70B", kept, rendezvous=False)
    assert composed_commands(client, namespace, jobs) == expected


@pytest.mark.parametrize(
    ("args", "since_2_3", "before"),
    [
        (["model.quantize_base=False"], "full", "qlora"),
        ([*LORA, "model.quantize_base=False"], "lora", "qlora"),
        ([*QLORA, "model.use_dora=False"], "qlora", "lora"),
        (["model.quantize_base=true"], "qlora", "qlora"),
        (["model.quantize_base"], "full", "qlora"),
    ],
)
def test_false_flags(client, namespace, target, args, since_2_3, before):
    """Since 2.3 a flag with the value False has no effect. Before, it selects or excludes QLoRA as True does."""
    kind = since_2_3 if target.trainer >= (2, 3) else before
    job = train_job(runtime=LLAMA, trainer=torchtune_trainer(args, numNodes=1, numProcPerNode=1))
    expected = expected_command("job", SINGLE[kind], "llama3_2/1B", stock_arguments(LLAMA), rendezvous=False)
    assert composed_commands(client, namespace, {"job": job}) == {"job": expected}


def test_arguments(client, namespace):
    """The arguments follow the built command. The runtime's GPUs are kept if the TrainJob requests none."""
    args = ["epochs=1", "dataset.split=train[:10%]", *LORA]
    jobset = create_jobsets(client, namespace, {"job": train_job(runtime=LLAMA, trainer=torchtune_trainer(args))})[
        "job"
    ]
    assert find_container(jobset)["args"] == args
    assert find_container(jobset)["resources"] == {"limits": {"nvidia.com/gpu": "2"}}


def test_other_commands(client, namespace):
    """Unless the command is exactly `tune run`, the Trainer keeps the runtime's or the TrainJob's command."""
    own = [
        *(*TUNE, "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", "llama3_2/1B_full"),
        *("dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet"),
        *("dataset.data_dir=/workspace/dataset/data", *stock_arguments(LLAMA)),
    ]
    jobs = {
        "nothing": train_job(runtime=LLAMA),
        "args": train_job(runtime=LLAMA, trainer={"args": LORA, "resourcesPerNode": gpu_resources(1)}),
        "more": train_job(runtime=LLAMA, trainer={"command": [*TUNE, "full_finetune_single_device"], "args": LORA}),
        "half": train_job(runtime=LLAMA, trainer={"command": ["tune"], "args": ["run"]}),
    }
    jobsets = create_jobsets(client, namespace, jobs)
    assert {
        name: (find_container(one)["command"], find_container(one).get("args")) for name, one in jobsets.items()
    } == {
        "nothing": (own, None),
        "args": (own, LORA),
        "more": ([*TUNE, "full_finetune_single_device"], LORA),
        "half": (["tune"], ["run"]),
    }
    masters = {name: "PET_MASTER_ADDR" in read_environment(find_container(one)) for name, one in jobsets.items()}
    assert masters == {"nothing": False, "args": True, "more": True, "half": True}


def test_torchtune_environment(client, namespace):
    """TorchTune gets nodes, processes and rank in PET_ variables after the user's, but no master address."""
    env = [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]
    jobs = {
        "two-gpus": train_job(runtime=LLAMA, trainer=torchtune_trainer(env=env)),
        "one-process": train_job(runtime=LLAMA, trainer=torchtune_trainer(numNodes=1, numProcPerNode=1)),
    }
    jobsets = create_jobsets(client, namespace, jobs)
    rank = {"fieldRef": {"fieldPath": RANK}}
    variables = [list(read_environment(find_container(jobsets[name])).items()) for name in jobs]
    assert variables[0] == [
        *[("B", "2"), ("A", "1"), ("PET_NNODES", "1"), ("PET_NPROC_PER_NODE", "auto"), ("PET_NODE_RANK", rank)]
    ]
    assert variables[1] == [("PET_NNODES", "1"), ("PET_NPROC_PER_NODE", "1"), ("PET_NODE_RANK", rank)]
    assert find_container(jobsets["two-gpus"])["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]


def test_the_pods_command(client, namespace, target):
    """Job and pod have the command, variables and resources of the JobSet."""
    runtime = create_training_only_runtime(client, namespace, LLAMA, "any-llama3.2-1b")
    nowhere = pod_patch(target.trainer, {"nodeSelector": {"example.org/no-such": "node"}})
    trainer = torchtune_trainer(
        LORA, numNodes=1, numProcPerNode=1, env=[{"name": "A", "value": "1"}], resourcesPerNode=gpu_resources(1)
    )
    client.create(train_job(trainer=trainer, **runtime, **nowhere), namespace)
    client.wait_for("Pod", namespace, "", bool, labelSelector="jobset.sigs.k8s.io/jobset-name=job")
    in_pod = list_pods(client, namespace)[0]["spec"]["containers"][0]
    in_job = client.get("Job", namespace, "job-node-0")["spec"]["template"]["spec"]["containers"][0]
    in_jobset = find_container(client.get("JobSet", namespace, "job"))
    expected = expected_command("job", SINGLE["lora"], "llama3_2/1B", stock_arguments(LLAMA), rendezvous=False)
    for one in (in_jobset, in_job, in_pod):
        assert (one["command"], one["args"]) == (expected, LORA)
    fixed = ("image", "resources", "ports")
    assert [in_pod[key] for key in fixed] == [in_job[key] for key in fixed] == [in_jobset[key] for key in fixed]
    rank = {"fieldRef": {"apiVersion": "v1", "fieldPath": RANK}}
    seen = {"A": "1", "PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": rank}
    assert read_environment(in_job) == seen
    index = {"fieldRef": {"apiVersion": "v1", "fieldPath": RANK.replace("annotations", "labels")}}
    assert read_environment(in_pod) == {**seen, "JOB_COMPLETION_INDEX": index}

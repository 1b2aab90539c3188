"""TorchTune requests that the Trainer's webhook rejects, by version, with the exact messages."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import TORCHTUNE_RUNTIMES, TUNE, create_training_only_runtime, gpu_resources
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job

DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
LLAMA, QWEN = TORCHTUNE_RUNTIMES["llama3.2-1b"], TORCHTUNE_RUNTIMES["qwen2.5-1.5b"]
LORA = ["model.lora_attn_modules=[q_proj]"]
QLORA = [*LORA, "model.quantize_base=True"]
NODES, PROCESSES = "spec.trainer.numNodes: Invalid value: ", "spec.trainer.numProcPerNode: Invalid value: "
TWO_NODES = f"{NODES}2: must be 1 for llama3_2/1B model"
LORA_NODES = f"{NODES}2: LoRA fine-tuning is not supported for multi-node training in TorchTune"
NO_QWEN = f'spec.runtimeRef.name: Invalid value: "{QWEN}": QLoRA is not supported for qwen2_5/1.5B model'


def torchtune_trainer(args=("epochs=1",), **trainer):
    return {"command": list(TUNE), "args": list(args), **trainer}


def single_process_trainer(args=("epochs=1",), **trainer):
    """Return a trainer with both counts, so that Trainer 2.1 validates it."""
    return torchtune_trainer(args, **{"numNodes": 1, "numProcPerNode": 1, **trainer})


def dry_run(client, namespace, trainer, **job):
    """Return code and message of a dry run, without the webhook's name."""
    body = train_job(trainer=trainer, **{"runtime": LLAMA, **job})
    found = client.request("POST", path_of("TrainJob", namespace), body, fieldValidation="Strict", dryRun="All")
    return found.code, "" if found.ok else found.message.removeprefix(DENIED)


def refusal(*problems):
    return 403, problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


ACCEPTED = (201, "")


def not_one_gpu_refusal(processes, resources, model="llama3_2/1B"):
    """Return the two problems of a QLoRA that is not on one device."""
    return refusal(
        f"{PROCESSES}{processes}: must be auto or 1 for {model} model when using QLoRA",
        f"spec.trainer.resourcesPerNode: Invalid value: {resources}: "
        f"must have gpu resource with value 1 for {model} model when using QLoRA",
    )


def test_qlora_on_qwen(client, namespace):
    """QLoRA on Qwen is rejected for every size."""
    assert dry_run(client, namespace, single_process_trainer(QLORA), runtime=QWEN) == refusal(NO_QWEN)
    two = single_process_trainer(QLORA, numProcPerNode=2, resourcesPerNode=gpu_resources(2))
    assert dry_run(client, namespace, two, runtime=QWEN) == refusal(NO_QWEN)
    assert dry_run(client, namespace, single_process_trainer(LORA), runtime=QWEN) == ACCEPTED


def test_qlora_on_several_devices(client, namespace):
    """QLoRA on Llama is accepted with one process or one GPU, and rejected with more."""
    two = '{"limits":{"nvidia.com/gpu":"2"},"requests":{"nvidia.com/gpu":"2"}}'
    sized = {"numProcPerNode": 2, "resourcesPerNode": gpu_resources(2)}
    assert dry_run(client, namespace, single_process_trainer(QLORA)) == ACCEPTED
    assert (
        dry_run(client, namespace, single_process_trainer(QLORA, numProcPerNode=2, resourcesPerNode=gpu_resources(1)))
        == ACCEPTED
    )
    assert dry_run(client, namespace, single_process_trainer(QLORA, resourcesPerNode=gpu_resources(2))) == ACCEPTED
    assert dry_run(client, namespace, single_process_trainer(QLORA, **sized)) == not_one_gpu_refusal("2", two)
    larger = not_one_gpu_refusal("2", two, "llama3_2/3B")
    assert (
        dry_run(client, namespace, single_process_trainer(QLORA, **sized), runtime=TORCHTUNE_RUNTIMES["llama3.2-3b"])
        == larger
    )


@pytest.mark.since("2.2")
def test_qlora_without_num_proc_per_node(client, namespace):
    """Without numProcPerNode, QLoRA needs a resource with gpu in its name: a MIG slice or one CPU is rejected."""
    mig = {"limits": {"nvidia.com/mig-1g.5gb": "1"}}
    text = '{"limits":{"nvidia.com/mig-1g.5gb":"1"}}'
    assert dry_run(client, namespace, torchtune_trainer(QLORA)) == not_one_gpu_refusal('"auto"', "null")
    assert dry_run(client, namespace, torchtune_trainer(QLORA, resourcesPerNode=mig)) == not_one_gpu_refusal(
        '"auto"', text
    )
    cpu = {"requests": {"cpu": "1"}}
    assert dry_run(client, namespace, torchtune_trainer(QLORA, resourcesPerNode=cpu)) == not_one_gpu_refusal(
        '"auto"', '{"requests":{"cpu":"1"}}'
    )
    assert dry_run(client, namespace, torchtune_trainer(QLORA, resourcesPerNode=gpu_resources(1))) == ACCEPTED


def test_nodes(client, namespace):
    """Several nodes are rejected, except for llama3.3-70b. 0 and negative numbers are accepted."""
    assert dry_run(client, namespace, single_process_trainer(numNodes=2)) == refusal(TWO_NODES)
    assert dry_run(client, namespace, single_process_trainer(numNodes=0)) == ACCEPTED
    assert dry_run(client, namespace, single_process_trainer(numNodes=-1)) == ACCEPTED
    large = create_training_only_runtime(client, namespace, LLAMA, "any-llama3.3-70b")
    assert dry_run(client, namespace, single_process_trainer(numNodes=2), **large) == ACCEPTED


def test_lora_on_nodes(client, namespace, target):
    """LoRA on several nodes is rejected since 2.3. Before, it trains all weights without a warning."""
    newer = target.trainer >= (2, 3)
    large = create_training_only_runtime(client, namespace, LLAMA, "any-llama3.3-70b")
    for args in (LORA, QLORA):
        two = single_process_trainer(args, numNodes=2)
        assert dry_run(client, namespace, two) == refusal(TWO_NODES, *([LORA_NODES] if newer else []))
        assert dry_run(client, namespace, two, **large) == (refusal(LORA_NODES) if newer else ACCEPTED)


def test_managed_paths(client, namespace, target):
    """Since 2.3 each argument that sets a path of the runtime is rejected."""
    keys = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
    args = ["epochs=1", *(f"{key}=/x" for key in keys), "output_dirs=/x", "output_dir"]
    places = [*enumerate(keys, 1), (6, "output_dir")]
    texts = [
        f'spec.trainer.args[{place}]: Invalid value: "{args[place]}": must not set immutable config "{key}" in '
        "trainer args; it is managed by the runtime"
        for place, key in places
    ]
    expected = refusal(*texts) if target.trainer >= (2, 3) else ACCEPTED
    assert dry_run(client, namespace, single_process_trainer(args)) == expected


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("mine-llama3.2-1b", None),
        ("mine-qwen2.5-1.5b", None),
        ("my-own-llama3.2-1b", ""),
        ("llama3.2-1b", ""),
        ("my-llama3-2-1b", ""),
        ("mine-llama3.2-7b", "llama3_2/7B"),
    ],
)
def test_names_of_runtimes(client, namespace, name, model):
    """The model is part of the runtime's name, which has three words: any word, the family, the size."""
    found = dry_run(
        client, namespace, single_process_trainer(), **create_training_only_runtime(client, namespace, LLAMA, name)
    )
    text = f'spec.runtimeRef.name: Invalid value: "{name}": must have a supported pretrained model, invalid model'
    assert found == (ACCEPTED if model is None else refusal(f"{text} configured: {model}"))


def test_another_runtime(client, namespace):
    """`tune run` on a runtime without TorchTune is rejected, because its name has no model."""
    text = 'spec.runtimeRef.name: Invalid value: "torch-distributed": must have a supported pretrained model, invalid'
    expected = refusal(f"{text} model configured: ")
    assert dry_run(client, namespace, single_process_trainer(), runtime="torch-distributed") == expected


def test_several_problems(client, namespace, target):
    """The webhook reports all TorchTune problems at once: variables, then nodes."""
    env = [{"name": "PET_NODE_RANK", "value": "1"}, {"name": "PET_FOO", "value": "1"}]
    value = '[{"name":"PET_NODE_RANK","value":"1"},{"name":"PET_FOO","value":"1"}]'
    text = f"spec.trainer.env: Invalid value: {value}: must not have reserved envs, invalid envs configured"
    lora = [LORA_NODES] if target.trainer >= (2, 3) else []
    expected = refusal(f"{text}: [PET_NODE_RANK]", TWO_NODES, *lora)
    assert dry_run(client, namespace, single_process_trainer(LORA, numNodes=2, env=env)) == expected


def test_other_commands(client, namespace):
    """TorchTune's arguments are validated only if the command is exactly `tune run`."""
    for command in ({}, {"command": ["tune"]}, {"command": [*TUNE, "full_finetune_distributed"]}):
        trainer = {"args": [*QLORA, "output_dir=/x"], "numNodes": 2, "numProcPerNode": 2, **command}
        assert dry_run(client, namespace, trainer, runtime=QWEN) == ACCEPTED


@pytest.mark.before("2.2")
def test_no_validation_without_num_proc_per_node(client, namespace):
    """Up to 2.1 nothing is validated without numProcPerNode. If it is set without numNodes, the webhook panics."""
    env = [{"name": "PET_NNODES", "value": "9"}]
    assert dry_run(client, namespace, torchtune_trainer(QLORA, numNodes=2, env=env), runtime=QWEN) == ACCEPTED
    assert dry_run(client, namespace, torchtune_trainer(), runtime="torch-distributed") == ACCEPTED
    panic = "panic: runtime error: invalid memory address or nil pointer dereference [recovered]"
    assert dry_run(client, namespace, torchtune_trainer(numProcPerNode=1)) == (500, panic)


def test_values_of_num_proc_per_node(client, namespace, target):
    """Up to 2.1 numProcPerNode can be auto, cpu or gpu. Since 2.2 it is a number."""
    responses = {
        word: dry_run(client, namespace, single_process_trainer(numProcPerNode=word))
        for word in ("auto", "cpu", "gpu", "x")
    }
    if target.trainer < (2, 2):
        problem = refusal(f'{PROCESSES}"x": must have an int value or [auto cpu gpu]')
        assert responses == {"auto": ACCEPTED, "cpu": ACCEPTED, "gpu": ACCEPTED, "x": problem}
        return
    defaulter = DENIED.replace("validator", "defaulter")
    for code, text in responses.values():
        assert (code, text.startswith(defaulter)) == (400, True)
        assert "spec.trainer.numProcPerNode" in text and "of type int32" in text

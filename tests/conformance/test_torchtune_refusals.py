"""What the Trainer's webhook refuses of TorchTune, in which version, and with which words."""

from __future__ import annotations

import pytest

from tests.conformance.composed import TORCHTUNE, TUNE, gpus, training_only
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job

DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
LLAMA, QWEN = TORCHTUNE["llama3.2-1b"], TORCHTUNE["qwen2.5-1.5b"]
LORA = ["model.lora_attn_modules=[q_proj]"]
QLORA = [*LORA, "model.quantize_base=True"]
NODES, PROCESSES = "spec.trainer.numNodes: Invalid value: ", "spec.trainer.numProcPerNode: Invalid value: "
TWO_NODES = f"{NODES}2: must be 1 for llama3_2/1B model"
LORA_NODES = f"{NODES}2: LoRA fine-tuning is not supported for multi-node training in TorchTune"
NO_QWEN = f'spec.runtimeRef.name: Invalid value: "{QWEN}": QLoRA is not supported for qwen2_5/1.5B model'


def tune(args=("epochs=1",), **trainer):
    return {"command": list(TUNE), "args": list(args), **trainer}


def one_process(args=("epochs=1",), **trainer):
    """With both counts, so that version 2.1 checks too."""
    return tune(args, **{"numNodes": 1, "numProcPerNode": 1, **trainer})


def answer(client, namespace, trainer, **job):
    """Code and text of the API server to a dry run; the text without the webhook's name."""
    body = train_job(trainer=trainer, **{"runtime": LLAMA, **job})
    found = client.ask("POST", path_of("TrainJob", namespace), body, fieldValidation="Strict", dryRun="All")
    return found.code, "" if found.ok else found.message.removeprefix(DENIED)


def refused(*problems):
    return 403, problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


ACCEPTED = (201, "")


def not_one_gpu(processes, resources, model="llama3_2/1B"):
    """Both problems of a QLoRA that is not on one device."""
    return refused(
        f"{PROCESSES}{processes}: must be auto or 1 for {model} model when using QLoRA",
        f"spec.trainer.resourcesPerNode: Invalid value: {resources}: "
        f"must have gpu resource with value 1 for {model} model when using QLoRA",
    )


def test_qlora_on_qwen(client, namespace):
    """QLoRA on Qwen is refused, whatever the size."""
    assert answer(client, namespace, one_process(QLORA), runtime=QWEN) == refused(NO_QWEN)
    two = one_process(QLORA, numProcPerNode=2, resourcesPerNode=gpus(2))
    assert answer(client, namespace, two, runtime=QWEN) == refused(NO_QWEN)
    assert answer(client, namespace, one_process(LORA), runtime=QWEN) == ACCEPTED


def test_qlora_on_several_devices(client, namespace):
    """QLoRA on Llama is accepted with one process or one GPU, and refused with more."""
    two = '{"limits":{"nvidia.com/gpu":"2"},"requests":{"nvidia.com/gpu":"2"}}'
    sized = {"numProcPerNode": 2, "resourcesPerNode": gpus(2)}
    assert answer(client, namespace, one_process(QLORA)) == ACCEPTED
    assert answer(client, namespace, one_process(QLORA, numProcPerNode=2, resourcesPerNode=gpus(1))) == ACCEPTED
    assert answer(client, namespace, one_process(QLORA, resourcesPerNode=gpus(2))) == ACCEPTED
    assert answer(client, namespace, one_process(QLORA, **sized)) == not_one_gpu("2", two)
    larger = not_one_gpu("2", two, "llama3_2/3B")
    assert answer(client, namespace, one_process(QLORA, **sized), runtime=TORCHTUNE["llama3.2-3b"]) == larger


@pytest.mark.since("2.2")
def test_qlora_without_a_count(client, namespace):
    """Without numProcPerNode QLoRA needs a resource called gpu: a MIG slice or one CPU is refused."""
    mig = {"limits": {"nvidia.com/mig-1g.5gb": "1"}}
    text = '{"limits":{"nvidia.com/mig-1g.5gb":"1"}}'
    assert answer(client, namespace, tune(QLORA)) == not_one_gpu('"auto"', "null")
    assert answer(client, namespace, tune(QLORA, resourcesPerNode=mig)) == not_one_gpu('"auto"', text)
    cpu = {"requests": {"cpu": "1"}}
    assert answer(client, namespace, tune(QLORA, resourcesPerNode=cpu)) == not_one_gpu(
        '"auto"', '{"requests":{"cpu":"1"}}'
    )
    assert answer(client, namespace, tune(QLORA, resourcesPerNode=gpus(1))) == ACCEPTED


def test_nodes(client, namespace):
    """Several nodes are refused, except for llama3.3-70b; 0 and less are accepted."""
    assert answer(client, namespace, one_process(numNodes=2)) == refused(TWO_NODES)
    assert answer(client, namespace, one_process(numNodes=0)) == ACCEPTED
    assert answer(client, namespace, one_process(numNodes=-1)) == ACCEPTED
    large = training_only(client, namespace, LLAMA, "any-llama3.3-70b")
    assert answer(client, namespace, one_process(numNodes=2), **large) == ACCEPTED


def test_lora_on_nodes(client, namespace, target):
    """LoRA on several nodes is refused from 2.3 on; before, all weights are trained without a word."""
    newer = target.trainer >= (2, 3)
    large = training_only(client, namespace, LLAMA, "any-llama3.3-70b")
    for args in (LORA, QLORA):
        two = one_process(args, numNodes=2)
        assert answer(client, namespace, two) == refused(TWO_NODES, *([LORA_NODES] if newer else []))
        assert answer(client, namespace, two, **large) == (refused(LORA_NODES) if newer else ACCEPTED)


def test_managed_paths(client, namespace, target):
    """The runtime's own paths in arguments are refused from 2.3 on, each by itself."""
    keys = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
    args = ["epochs=1", *(f"{key}=/x" for key in keys), "output_dirs=/x", "output_dir"]
    places = [*enumerate(keys, 1), (6, "output_dir")]
    texts = [
        f'spec.trainer.args[{place}]: Invalid value: "{args[place]}": must not set immutable config "{key}" in '
        "trainer args; it is managed by the runtime"
        for place, key in places
    ]
    expected = refused(*texts) if target.trainer >= (2, 3) else ACCEPTED
    assert answer(client, namespace, one_process(args)) == expected


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
    """The model is read from the runtime's name, of exactly three words: any, the family, the size."""
    found = answer(client, namespace, one_process(), **training_only(client, namespace, LLAMA, name))
    text = f'spec.runtimeRef.name: Invalid value: "{name}": must have a supported pretrained model, invalid model'
    assert found == (ACCEPTED if model is None else refused(f"{text} configured: {model}"))


def test_another_runtime(client, namespace):
    """On a runtime that is not TorchTune's the command `tune run` is refused, as its name is no model."""
    text = 'spec.runtimeRef.name: Invalid value: "torch-distributed": must have a supported pretrained model, invalid'
    expected = refused(f"{text} model configured: ")
    assert answer(client, namespace, one_process(), runtime="torch-distributed") == expected


def test_several_problems(client, namespace, target):
    """All problems are named at once: variables, then nodes."""
    env = [{"name": "PET_NODE_RANK", "value": "1"}, {"name": "PET_FOO", "value": "1"}]
    said = '[{"name":"PET_NODE_RANK","value":"1"},{"name":"PET_FOO","value":"1"}]'
    text = f"spec.trainer.env: Invalid value: {said}: must not have reserved envs, invalid envs configured"
    lora = [LORA_NODES] if target.trainer >= (2, 3) else []
    expected = refused(f"{text}: [PET_NODE_RANK]", TWO_NODES, *lora)
    assert answer(client, namespace, one_process(LORA, numNodes=2, env=env)) == expected


def test_other_commands(client, namespace):
    """Nothing of this is checked unless the command is exactly `tune run`."""
    for command in ({}, {"command": ["tune"]}, {"command": [*TUNE, "full_finetune_distributed"]}):
        trainer = {"args": [*QLORA, "output_dir=/x"], "numNodes": 2, "numProcPerNode": 2, **command}
        assert answer(client, namespace, trainer, runtime=QWEN) == ACCEPTED


@pytest.mark.before("2.2")
def test_unchecked_without_a_count(client, namespace):
    """Up to 2.1 nothing is checked unless numProcPerNode is given; without numNodes next to it the webhook panics."""
    env = [{"name": "PET_NNODES", "value": "9"}]
    assert answer(client, namespace, tune(QLORA, numNodes=2, env=env), runtime=QWEN) == ACCEPTED
    assert answer(client, namespace, tune(), runtime="torch-distributed") == ACCEPTED
    panic = "panic: runtime error: invalid memory address or nil pointer dereference [recovered]"
    assert answer(client, namespace, tune(numProcPerNode=1)) == (500, panic)


def test_words_for_processes(client, namespace, target):
    """numProcPerNode may be auto, cpu or gpu up to 2.1; from 2.2 on it is a number."""
    given = {word: answer(client, namespace, one_process(numProcPerNode=word)) for word in ("auto", "cpu", "gpu", "x")}
    if target.trainer < (2, 2):
        problem = refused(f'{PROCESSES}"x": must have an int value or [auto cpu gpu]')
        assert given == {"auto": ACCEPTED, "cpu": ACCEPTED, "gpu": ACCEPTED, "x": problem}
        return
    defaulter = DENIED.replace("validator", "defaulter")
    for code, text in given.values():
        assert (code, text.startswith(defaulter)) == (400, True)
        assert "spec.trainer.numProcPerNode" in text and "of type int32" in text

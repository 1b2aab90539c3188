"""The likeliest wrong requests in Python and in files, and the next step that their errors name."""
# mypy: disable-error-code="call-arg"

from __future__ import annotations

import pytest

from trainjob import (
    ExportModel,
    FineTune,
    InitializeModel,
    InvalidSpec,
    LoraConfig,
    Queue,
    TorchTuneConfig,
    TrainJob,
    TRLConfig,
    TRLLoraConfig,
    UnslothConfig,
    WorkspaceVolume,
)
from trainjob.manifest.request_parser import parse_documents

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
TORCHTUNE_LINE = 'config={"framework": "torchtune"} trains llama3.2-1b, llama3.2-3b, llama3.3-70b, qwen2.5-1.5b with'
TRL_LINE = 'config={"framework": "trl", "method": "sft"} trains another model of a workspace with TRL'


def tune(**fields):
    return FineTune(**{"model": LLAMA, "workspace": "w", "config": {"framework": "trl", "method": "sft"}, **fields})


IN_PYTHON = {
    "no framework": (
        lambda: FineTune(model=LLAMA, workspace="w"),
        ["config is required: choose the framework:", TORCHTUNE_LINE, TRL_LINE],
    ),
    "fields of several frameworks": (
        lambda: tune(config={"method": "sft", "peft_config": {"lora_rank": 16}}),
        ["config.framework is required: choose the framework:", TRL_LINE],
    ),
    "TorchTune with another model": (
        lambda: tune(config=TorchTuneConfig()),
        [f"model cannot be '{LLAMA}': TorchTune trains llama3.2-1b,", '{"framework": "trl", "method": "sft"}'],
    ),
    "unknown framework": (lambda: tune(config={"framework": "axolotl"}), ["cannot be 'axolotl': it must be one of"]),
    "LoRA of another framework": (
        lambda: TRLConfig(method="sft", peft_config=LoraConfig(lora_rank=16)),
        ["peft_config cannot be a LoraConfig: give a TRLLoraConfig or a dict of its fields"],
    ),
    "peft's name of the rank": (lambda: TRLLoraConfig(r=16), ["in TRLLoraConfig; did you mean lora_rank?"]),
    "peft's name with TorchTune": (lambda: LoraConfig(r=16), ["in LoraConfig; did you mean lora_rank?"]),
    "the Trainer's name of epochs": (lambda: TRLConfig(method="sft", num_train_epochs=3), ["did you mean epochs?"]),
    "the Trainer's name of the batch": (
        lambda: TRLConfig(method="sft", per_device_train_batch_size=8),
        ["did you mean batch_size?"],
    ),
    "an argument as a field": (
        lambda: UnslothConfig(method="sft", resources_per_node={"gpu": 1}, warmup_steps=10),
        ["there is no field 'warmup_steps' in UnslothConfig; did you mean arguments.warmup_steps?"],
    ),
    "misspelled field": (lambda: TRLConfig(method="sft", learningrate=1e-4), ["did you mean learning_rate?"]),
    "misspelled argument": (
        lambda: tune(config={"framework": "trl", "method": "sft", "arguments": {"warmup_stps": 1}}),
        ["config.arguments.warmup_stps: TRL 1.16.0 sft has no such argument; did you mean warmup_steps"],
    ),
    "no method": (lambda: tune(config={"framework": "trl"}), ["config.method is required"]),
    "unknown method": (lambda: TRLConfig(method="ppo"), ["method cannot be 'ppo': it must be 'sft', 'dpo'"]),
    "template in an object": (
        lambda: TRLConfig(method="sft", learning_rate="{{ params.lr }}"),
        ["learning_rate cannot be '{{ params.lr }}': it must be a number; it is a template", "give a dict"],
    ),
    "template in an argument of the method": (
        lambda: TRLConfig(method="sft", arguments={"logging_steps": "{{ params.steps }}"}),
        ["arguments.logging_steps cannot be", "it is a template, and no template is rendered in a TRLConfig"],
    ),
    "template in a name": (
        lambda: Queue(name="{{ params.queue }}"),
        ["it must be a Kubernetes name", "no template is rendered in a Queue: give a dict of its fields"],
    ),
    "statement of Jinja in an object": (
        lambda: TRLConfig(method="sft", learning_rate="{% if params.fast %}1e-3{% endif %}"),
        ["it must be a number; it is a template, and no template is rendered in a TRLConfig: give a dict"],
    ),
    "setting of the configuration": (lambda: tune(epochs=3), ["in FineTune; did you mean config.epochs?"]),
    "nodes of the step": (lambda: tune(num_nodes=2), ["in FineTune; did you mean config.num_nodes?"]),
    "GPUs of the step": (lambda: tune(resources={"gpu": 1}), ["did you mean config.resources_per_node?"]),
    "Airflow's name of the queue": (lambda: tune(queue_name="team"), ["in FineTune; did you mean queue?"]),
    "priority without a queue": (lambda: tune(priority_class="high"), ["did you mean queue.priority_class?"]),
    "wrong type": (lambda: TRLConfig(method="sft", epochs="three"), ["it must be a number"]),
    "wrong value": (lambda: TorchTuneConfig(epochs=0), ["epochs cannot be 0: it must be at least 1"]),
    "no workspace": (lambda: tune(workspace=None), ["workspace is required: "]),
    "size of a workspace": (lambda: WorkspaceVolume(size="10Gi"), ["its fields are claim, sub_path, node_path"]),
    "source of a model": (lambda: InitializeModel(workspace="w", source="hf://a/b"), ["did you mean storage_uri?"]),
    "target of an export": (lambda: ExportModel(workspace="w", storage_uri="s3://a/b"), ["did you mean destination?"]),
    "image of a job": (lambda: TrainJob(image="x"), ["in TrainJob; did you mean trainer.image?"]),
    "a name like that of a class": (
        lambda: tune(placement={"nodeSelector": {}, "Tolerations": []}),
        ["placement.Tolerations: there is no field", "did you mean tolerations?"],
    ),
    "name in a queue": (lambda: Queue(queue="team"), ["there is no field 'queue' in Queue; its fields are name, "]),
}  # fmt: skip
STEP = f"step: FineTune\nworkspace: tickets\nmodel: {LLAMA}\n"
IN_FILES = {
    "no framework": (STEP, ["file.yaml:1: config is required: choose the framework:", TRL_LINE]),
    "KFP's name of the queue's priority": (
        f"{STEP}config: {{framework: trl, method: sft}}\npriority_class: high\n",
        ["file.yaml:5: priority_class: there is no field", "did you mean queue.priority_class?"],
    ),
    "KFP's name of the deadline": (
        f"{STEP}config: {{framework: trl, method: sft}}\ndeadline_seconds: 60\n",
        ["file.yaml:5: deadline_seconds: there is no field", "did you mean deadline?"],
    ),
    "two problems": (
        f"{STEP}config: {{framework: trl, method: sft, lora_rank: 8}}\nepochs: 2\n",
        [
            "file.yaml:4: config.lora_rank: ",
            "did you mean peft_config.lora_rank?\nfile.yaml:5: epochs: ",
            "config.epochs?",
        ],
    ),
}


@pytest.mark.parametrize("case", IN_PYTHON)
def test_the_error_of_a_wrong_request_names_the_next_step(case):
    make, parts = IN_PYTHON[case]
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert [part for part in parts if part not in str(raised.value)] == [], raised.value


@pytest.mark.parametrize("case", IN_FILES)
def test_the_error_of_a_wrong_file_names_line_and_next_step(case):
    text, parts = IN_FILES[case]
    with pytest.raises(InvalidSpec) as raised:
        parse_documents(text, "file.yaml")
    assert [part for part in parts if part not in str(raised.value)] == [], raised.value


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "bf16"}, TorchTuneConfig),
        ({"method": "grpo", "reward_functions": ["think_format_reward"]}, TRLConfig),
    ],
)
def test_fields_that_only_one_framework_has_choose_it(config, expected):
    assert type(FineTune(model="llama3.2-1b", workspace="w", config=config).config) is expected


def test_each_problem_has_a_line_of_its_own():
    with pytest.raises(InvalidSpec) as raised:
        TRLConfig(method="sft", lr=1, num_train_epochs=2)
    assert str(raised.value).count("\n") == len(raised.value.problems) - 1 == 1

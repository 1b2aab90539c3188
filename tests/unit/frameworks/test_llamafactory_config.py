"""Configurations of LLaMA-Factory: allowed values, refusals, arguments, and the identity of requests."""

from __future__ import annotations

import json

import pytest

from trainjob import (
    BuiltinTrainer,
    FineTune,
    HuggingFaceDatasetInitializer,
    InvalidSpec,
    LLaMAFactoryConfig,
    LLaMAFactoryLoraConfig,
    TrainJob,
    TRLConfig,
)
from trainjob.frameworks.llamafactory.argument_names import LORA_ARGUMENTS
from trainjob.frameworks.llamafactory.argument_table import LLAMAFACTORY_VERSIONS, get_arguments, get_templates
from trainjob.frameworks.llamafactory.pod.run_arguments import parse_run_arguments
from trainjob.frameworks.program_options import DEFAULT_ARGUMENTS
from trainjob.manifest import spec_hash
from trainjob.manifest.steps import to_trainjob

IMAGE = "docker.io/hiyouga/llamafactory:0.9.5"


def step(**config) -> FineTune:
    return FineTune(
        model="any/model-1b", workspace="w", config={"framework": "llamafactory", "method": "sft", **config}
    )


def arguments_of(**config) -> dict:
    words = list(to_trainjob(step(**config), run="r").trainer.args)
    return json.loads(words[words.index("--arguments") + 1])


@pytest.mark.parametrize("version", LLAMAFACTORY_VERSIONS)
def test_the_table_has_the_arguments_of_the_fields(version):
    known = get_arguments(version)
    assert {
        *LLaMAFactoryConfig.list_field_arguments().values(),
        *LORA_ARGUMENTS.values(),
        "output_dir",
        "resume_from_checkpoint",
    } <= set(known)
    assert known["stage"] == "str: pt|sft|rm|ppo|dpo|kto"
    assert {"llama3", "qwen", "default"} <= set(get_templates(version))


def test_fields_and_arguments_become_arguments_of_llamafactory():
    assert arguments_of(
        template="llama3",
        epochs=1.5,
        batch_size=4,
        learning_rate=1e-4,
        max_length=512,
        packing=True,
        precision="fp16",
        peft_config={
            "lora_rank": 8,
            "target_modules": ["all-linear"],
            "modules_to_save": ["embed", "head"],
            "use_dora": True,
        },
        arguments={"optim": "adafactor", "warmup_steps": 10, "run_name": "$$(HOME)"},
    ) == {
        "finetuning_type": "lora",
        "save_total_limit": 2,
        "logging_nan_inf_filter": False,
        "template": "llama3",
        "num_train_epochs": 1.5,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-4,
        "cutoff_len": 512,
        "packing": True,
        "fp16": True,
        "lora_rank": 8,
        "lora_target": "all",
        "additional_target": "embed,head",
        "use_dora": True,
        "optim": "adafactor",
        "warmup_steps": 10,
        "run_name": "$$$$(HOME)",  # Kubernetes expands $$ to $
    }
    assert arguments_of() == {"finetuning_type": "full", **DEFAULT_ARGUMENTS}
    assert arguments_of(peft_config={"load_in_4bit": True})["quantization_bit"] == 4
    assert arguments_of(peft_config={"load_in_8bit": True})["quantization_bit"] == 8


def test_the_program_parses_what_the_core_builds():
    request = FineTune(
        model="tiny",
        workspace="w",
        dataset_path="pairs",
        model_path="exported",
        output_path="dpo",
        config=LLaMAFactoryConfig(
            method="dpo",
            columns={"chosen": "good"},
            eval_dataset_path="held",
            peft_config=LLaMAFactoryLoraConfig(merge=True),
        ),
    )
    trainer = to_trainjob(request, run="r").trainer
    run = parse_run_arguments(list(trainer.args))
    assert (json.loads(run.run)["run"], run.method, run.model_name, run.merge) == ("r", "dpo", "tiny", True)
    assert [str(path) for path in (*run.inputs, run.eval_dataset, run.output)] == [
        "/workspace/exported",
        "/workspace/dataset/pairs",
        "/workspace/dataset/held",
        "/workspace/output/dpo",
    ]
    assert (run.columns, run.llamafactory_version) == ({"chosen": "good"}, "0.9.5")
    assert run.arguments["eval_strategy"] == "epoch"


def test_the_image_is_llamafactorys_own_unless_the_step_names_one():
    config = {"framework": "llamafactory", "method": "sft"}
    fields = {"model": "m", "workspace": "w", "config": config}
    assert to_trainjob(FineTune(**fields)).trainer.image == IMAGE
    assert to_trainjob(FineTune(**fields, image="ours:1")).trainer.image == "ours:1"
    assert to_trainjob(FineTune(**fields, runtime="team-llamafactory")).trainer.image is None


def test_a_run_that_cannot_resume_has_no_identifier():
    for config in ({"save_strategy": "no"}, {"arguments": {"save_only_model": True}}):
        assert not step(**config).can_resume
        assert "--run" not in to_trainjob(step(**config), run="r").trainer.args
    assert step().can_resume


def test_the_framework_is_part_of_the_identity():
    fields = {"model": "any/model-1b", "workspace": "w"}
    trl = FineTune(**fields, config=TRLConfig(method="sft", epochs=2))
    assert len({spec_hash(each) for each in (step(epochs=2), step(epochs=3), trl)}) == 3
    typed = FineTune(**fields, config=LLaMAFactoryConfig(method="sft", epochs=2))
    assert spec_hash(step(epochs=2)) == spec_hash(typed)


REFUSED = {
    "unknown method": ({"method": "ppo"}, "config.method", "'pt', 'sft', 'dpo' or 'kto'"),
    "unknown field": ({"learning_rat": 1}, "config.learning_rat", "did you mean learning_rate?"),
    "unknown argument": (
        {"arguments": {"warmup_stps": 1}},
        "config.arguments.warmup_stps",
        "LLaMA-Factory 0.9.5 has no such argument; did you mean warmup_steps",
    ),
    "wrong type": ({"arguments": {"max_grad_norm": "much"}}, "config.arguments.max_grad_norm", "a number"),
    "wrong choice": ({"lr_scheduler_type": "round"}, "config.lr_scheduler_type", "linear, cosine"),
    "unknown template": ({"template": "lama3"}, "config.template", "no such template; did you mean llama3"),
    "typed field in arguments": ({"arguments": {"cutoff_len": 1}}, "config.arguments.cutoff_len", "give max_length"),
    "LoRA without peft_config": (
        {"arguments": {"lora_rank": 8}},
        "config.arguments.lora_rank",
        "give peft_config=LLaMAFactoryLoraConfig(lora_rank=...)",
    ),
    "kind of training": ({"arguments": {"finetuning_type": "lora"}}, "config.arguments.finetuning_type", "peft_config"),
    "path of the step": ({"arguments": {"output_dir": "/tmp"}}, "config.arguments.output_dir", "give output_path"),
    "dataset": ({"arguments": {"dataset": "alpaca"}}, "config.arguments.dataset", "give dataset_path"),
    "token": ({"arguments": {"hf_hub_token": "hf_secret"}}, "config.arguments.hf_hub_token", "in steps before"),
    "packed pairs": ({"method": "dpo", "packing": True}, "config.packing", "only pt and sft"),
    "4 bits on a CPU": (
        {"peft_config": {"load_in_4bit": True}, "arguments": {"use_cpu": True}},
        "config.peft_config.load_in_4bit",
        "requires a GPU",
    ),
    "one kept checkpoint": ({"arguments": {"save_total_limit": 1}}, "config.arguments.save_total_limit", "at least 2"),
    "merge with another vocabulary": (
        {"peft_config": {"lora_rank": 4}, "arguments": {"resize_vocab": True}},
        "config.arguments.resize_vocab",
        "merge=False",
    ),
    "evaluation without rows": ({"eval_strategy": "steps"}, "config.eval_strategy", "eval_dataset_path"),
    "path out of the workspace": ({"eval_dataset_path": "../x"}, "config.eval_dataset_path", "without '..'"),
    "unknown column": ({"columns": {"instruction": "a"}}, "config.columns.instruction", "prompt, query, completion"),
    "unknown version": ({"llamafactory_version": "0.9.0"}, "config.llamafactory_version", "0.9.5"),
    "precision of a CPU": ({"precision": "fp32"}, "config.precision", "'bf16' or 'fp16'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_refused_with_field_and_rule(case):
    config, field, rule = REFUSED[case]
    with pytest.raises(InvalidSpec) as raised:
        step(**config)
    found = {problem.field: problem for problem in raised.value.problems}
    assert field in found, found
    assert rule in found[field].allowed
    assert "hf_secret" not in str(raised.value)


def test_a_workspace_is_required():
    with pytest.raises(InvalidSpec, match="workspace is required: LLaMA-Factory needs a workspace"):
        FineTune(
            model="m",
            dataset=HuggingFaceDatasetInitializer(storage_uri="hf://a/b"),
            config=LLaMAFactoryConfig(method="sft"),
        )


def test_no_runtime_of_the_trainer_contains_llamafactory():
    trainer = BuiltinTrainer(config=LLaMAFactoryConfig(method="sft"))
    with pytest.raises(
        InvalidSpec, match=r"trainer\.config cannot be 'a LLaMAFactoryConfig': .* use FineTune with a workspace"
    ):
        TrainJob(trainer=trainer, runtime="torchtune-llama3.2-1b")

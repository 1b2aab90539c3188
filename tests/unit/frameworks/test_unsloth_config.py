"""Configurations of Unsloth: allowed values, refusals, arguments, and the identity of requests."""

from __future__ import annotations

import json

import pytest

from trainjob import (
    BuiltinTrainer,
    FineTune,
    HuggingFaceDatasetInitializer,
    InvalidSpec,
    TrainJob,
    TRLConfig,
    UnslothConfig,
    UnslothLoraConfig,
)
from trainjob.frameworks.program_options import DEFAULT_ARGUMENTS
from trainjob.frameworks.unsloth.argument_names import ADVICE
from trainjob.frameworks.unsloth.argument_table import (
    UNSLOTH_VERSIONS,
    get_arguments,
    get_lora_arguments,
    get_model_arguments,
)
from trainjob.frameworks.unsloth.pod.run_arguments import parse_run_arguments
from trainjob.manifest import spec_hash
from trainjob.manifest.steps import to_trainjob

IMAGE = "registry.example/unsloth:1"
GPU = {"gpu": 1}
GPU_RULE = "Unsloth trains on GPUs only: give a GPU, such as resources_per_node={'gpu': 1}"


def step(image=IMAGE, runtime=None, **config) -> FineTune:
    given = {"framework": "unsloth", "method": "sft", "resources_per_node": GPU, **config}
    return FineTune(model="any/model-1b", workspace="w", image=image, runtime=runtime, config=given)


def run_of(**config):
    return parse_run_arguments(list(to_trainjob(step(**config), run="r").trainer.args))


def problems_of(**fields):
    with pytest.raises(InvalidSpec) as raised:
        step(**fields)
    return {problem.field: (problem.value, problem.allowed) for problem in raised.value.problems}


@pytest.mark.parametrize("version", UNSLOTH_VERSIONS)
@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_the_table_has_the_arguments_of_the_fields(version, method):
    known = get_arguments(version, method)
    missing = {*UnslothConfig.list_field_arguments().values(), "bf16", "fp16", "gradient_checkpointing"} - set(known)
    assert missing == (set() if method == "sft" else {"packing"})
    assert {"output_dir", "disable_tqdm", "resume_from_checkpoint", "save_total_limit"} <= set(known)
    assert not {*get_model_arguments(version), *get_lora_arguments(version)} & {
        *UnslothConfig.list_field_arguments().values(),
        *ADVICE,
    }


def test_fields_become_arguments_of_the_model_of_lora_and_of_the_trainer():
    run = run_of(
        epochs=1.5,
        batch_size=4,
        learning_rate=1e-4,
        max_length=512,
        packing=True,
        precision="fp16",
        gradient_checkpointing="unsloth",
        seed=3,
        peft_config={"lora_rank": 8, "target_modules": ["all-linear"], "modules_to_save": ["head"], "use_dora": True},
        arguments={
            "optim": "adafactor",
            "warmup_steps": 10,
            "bias": "lora_only",
            "rope_scaling": {"factor": 2.0},
        },
    )
    assert run.model_arguments == {
        "full_finetuning": False,
        "load_in_4bit": False,
        "load_in_8bit": False,
        "max_seq_length": 512,
        "dtype": "float16",
        "use_gradient_checkpointing": "unsloth",
        "random_state": 3,
        "rope_scaling": {"factor": 2.0},
    }
    assert run.lora_arguments == {
        "r": 8,
        "target_modules": "all-linear",
        "modules_to_save": ["head"],
        "use_dora": True,
        "use_gradient_checkpointing": "unsloth",
        "random_state": 3,
        "bias": "lora_only",
    }
    assert run.arguments == {
        "save_total_limit": 2,
        "logging_nan_inf_filter": False,
        "num_train_epochs": 1.5,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-4,
        "max_length": 512,
        "packing": True,
        "seed": 3,
        "bf16": False,
        "fp16": True,
        "gradient_checkpointing": True,
        "optim": "adafactor",
        "warmup_steps": 10,
    }


def test_without_lora_all_weights_are_trained_in_16_bits():
    run = run_of(gradient_checkpointing=False)
    assert run.model_arguments == {
        "full_finetuning": True,
        "load_in_4bit": False,
        "load_in_8bit": False,
        "use_gradient_checkpointing": False,
    }
    assert run.lora_arguments is None
    assert run.arguments == {**DEFAULT_ARGUMENTS, "gradient_checkpointing": False}
    assert run.merge is False


@pytest.mark.parametrize("bits", [4, 8])
def test_qlora_loads_the_base_model_in_fewer_bits(bits):
    run = run_of(peft_config={f"load_in_{bits}bit": True})
    assert {name for name, value in run.model_arguments.items() if value} == {f"load_in_{bits}bit"}
    assert run.lora_arguments == {}
    assert run.merge is True


def test_the_program_parses_what_the_core_builds():
    request = FineTune(
        model="tiny",
        workspace="w",
        dataset_path="pairs",
        model_path="exported",
        output_path="dpo",
        image=IMAGE,
        config=UnslothConfig(
            method="dpo",
            columns={"chosen": "good"},
            eval_dataset_path="held",
            peft_config=UnslothLoraConfig(merge=False),
            resources_per_node=GPU,
            arguments={"run_name": "$(HOME)"},
        ),
    )
    run = parse_run_arguments(list(to_trainjob(request, run="r").trainer.args))
    assert (json.loads(run.run)["run"], run.method, run.model_name, run.merge) == ("r", "dpo", "tiny", False)
    assert [str(path) for path in (*run.inputs, run.eval_dataset, run.output)] == [
        "/workspace/exported",
        "/workspace/dataset/pairs",
        "/workspace/dataset/held",
        "/workspace/output/dpo",
    ]
    assert (run.columns, run.unsloth_version) == ({"chosen": "good"}, "2026.10.9")
    assert run.arguments == {**DEFAULT_ARGUMENTS, "eval_strategy": "epoch", "run_name": "$$(HOME)"}
    assert json.loads(json.dumps(run.parameters)) == {**run.model_arguments, **run.arguments}


def test_a_node_has_a_process_for_each_gpu():
    trainer = to_trainjob(step(resources_per_node={"gpu": 4}, num_nodes=2)).trainer
    assert (trainer.image, trainer.num_nodes, trainer.num_proc_per_node) == (IMAGE, 2, 4)
    trainer = to_trainjob(step(resources_per_node={"gpu": 4}, num_proc_per_node=1)).trainer
    assert trainer.num_proc_per_node == 1


@pytest.mark.parametrize(
    "resources", [{"gpu": 1}, {"amd.com/gpu": 2}, {"gpu.intel.com/i915": 1}, {"mig-1g.5gb": 1}, {"nvidia.com/gpu": 8}]
)
def test_gpus_of_every_vendor_are_accepted(resources):
    assert step(resources_per_node=resources).config.resources_per_node == {
        name: str(amount) for name, amount in resources.items()
    }


def test_a_step_without_image_and_gpu_is_refused():
    assert problems_of(image=None, resources_per_node=None) == {
        "image": ("None", "give an image with Unsloth 2026.10.9, or a runtime with such an image"),
        "config.resources_per_node": ("None", f"{GPU_RULE}, or a runtime that requests one"),
    }


@pytest.mark.parametrize("resources", [{"cpu": "8", "memory": "64Gi"}, {"gpu": 0}, {"rdma/hca": 1}])
def test_resources_without_a_gpu_are_refused(resources):
    shown = repr({name: str(amount) for name, amount in resources.items()})
    expected = {"config.resources_per_node": (shown, GPU_RULE)}
    assert problems_of(resources_per_node=resources) == expected
    assert problems_of(resources_per_node=resources, image=None, runtime="team-unsloth") == expected


def test_a_runtime_may_have_image_and_gpus():
    found = to_trainjob(step(image=None, runtime="team-unsloth", resources_per_node=None)).trainer
    assert (found.image, found.resources_per_node) == (None, None)


def test_a_run_that_cannot_resume_has_no_identifier():
    for config in ({"save_strategy": "no"}, {"arguments": {"save_only_model": True}}):
        assert not step(**config).can_resume
        assert "--run" not in to_trainjob(step(**config), run="r").trainer.args
    assert step().can_resume


def test_the_framework_is_part_of_the_identity():
    fields = {"model": "any/model-1b", "workspace": "w", "image": IMAGE}
    trl = FineTune(**fields, config=TRLConfig(method="sft", epochs=2, resources_per_node=GPU))
    assert len({spec_hash(each) for each in (step(epochs=2), step(epochs=3), trl)}) == 3
    typed = FineTune(**fields, config=UnslothConfig(method="sft", epochs=2, resources_per_node=GPU))
    assert spec_hash(step(epochs=2)) == spec_hash(typed)


DDP = "with Unsloth, each process trains a copy of the model (DDP): use TRLConfig to shard the model"
UNKNOWN = "Unsloth 2026.10.9 with TRL 1.15.0 {method} has no such argument"
REFUSED = {
    "unknown method": ({"method": "grpo"}, "config.method", "'grpo'", "it must be 'sft', 'dpo' or 'kto'"),
    "unknown field": (
        {"learning_rat": 1},
        "config.learning_rat",
        "1",
        "there is no field 'learning_rat' in UnslothConfig; did you mean learning_rate?",
    ),
    "unknown argument": (
        {"arguments": {"warmup_stps": 1}},
        "config.arguments.warmup_stps",
        "1",
        f"{UNKNOWN.format(method='sft')}; did you mean warmup_steps or max_steps?",
    ),
    "argument of another method": (
        {"method": "dpo", "arguments": {"dataset_text_field": "text"}},
        "config.arguments.dataset_text_field",
        "'text'",
        UNKNOWN.format(method="dpo"),
    ),
    "wrong type": (
        {"arguments": {"max_grad_norm": "much"}},
        "config.arguments.max_grad_norm",
        "'much'",
        "it must be a number",
    ),
    "wrong choice": (
        {"peft_config": {"lora_rank": 4}, "arguments": {"bias": "some"}},
        "config.arguments.bias",
        "'some'",
        "it must be one of none, all, lora_only",
    ),
    "typed field in arguments": (
        {"arguments": {"max_seq_length": 1}},
        "config.arguments.max_seq_length",
        "1",
        "give max_length",
    ),
    "memory in arguments": (
        {"arguments": {"use_gradient_checkpointing": False}},
        "config.arguments.use_gradient_checkpointing",
        "False",
        "give gradient_checkpointing",
    ),
    "LoRA without peft_config": (
        {"arguments": {"lora_alpha": 8}},
        "config.arguments.lora_alpha",
        "8",
        "give peft_config=UnslothLoraConfig(lora_alpha=...)",
    ),
    "setting of LoRA without LoRA": (
        {"arguments": {"bias": "all"}},
        "config.arguments.bias",
        "'all'",
        "give peft_config, too",
    ),
    "bits without LoRA": (
        {"arguments": {"load_in_4bit": True}},
        "config.arguments.load_in_4bit",
        "True",
        "give peft_config=UnslothLoraConfig(load_in_4bit=...)",
    ),
    "path of the step": (
        {"arguments": {"output_dir": "/tmp"}},
        "config.arguments.output_dir",
        "'/tmp'",
        "give output_path",
    ),
    "CPU": ({"arguments": {"use_cpu": True}}, "config.arguments.use_cpu", "True", "Unsloth trains on GPUs only"),
    "DeepSpeed": ({"deepspeed": {"zero_optimization": {"stage": 3}}}, "config.deepspeed", "a dict", DDP),
    "FSDP": ({"arguments": {"fsdp": "full_shard"}}, "config.arguments.fsdp", "'full_shard'", DDP),
    "vLLM": ({"arguments": {"fast_inference": True}}, "config.arguments.fast_inference", "True", "no method uses vLLM"),
    "packed pairs": (
        {"method": "kto", "packing": True},
        "config.packing",
        "True",
        "kto trains on judged answers: only sft packs samples",
    ),
    "more processes than GPUs": (
        {"num_proc_per_node": 2},
        "config.num_proc_per_node",
        "2",
        "each process needs a GPU of its own, and a node has 1",
    ),
    "one kept checkpoint": (
        {"arguments": {"save_total_limit": 1}},
        "config.arguments.save_total_limit",
        "1",
        "give at least 2: with 1, a kill during a save would leave no complete checkpoint",
    ),
    "evaluation without rows": (
        {"eval_strategy": "steps"},
        "config.eval_strategy",
        "'steps'",
        "give eval_dataset_path, too",
    ),
    "unknown version": (
        {"unsloth_version": "2025.1.1"},
        "config.unsloth_version",
        "'2025.1.1'",
        "the arguments of these versions are known: 2026.10.9",
    ),
    "precision of a CPU": ({"precision": "fp32"}, "config.precision", "'fp32'", "it must be 'bf16' or 'fp16'"),
    "4 and 8 bits": (
        {"peft_config": {"load_in_4bit": True, "load_in_8bit": True}},
        "config.peft_config.load_in_8bit",
        "True",
        "give load_in_4bit or load_in_8bit, not both",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_refused_with_field_value_and_rule(case):
    config, field, value, rule = REFUSED[case]
    assert problems_of(**config) == {field: (value, rule)}


def test_a_token_is_refused_and_not_shown():
    problems = problems_of(arguments={"token": "hf_secret"})
    assert problems == {"config.arguments.token": ("***", "fetch model and dataset in steps before")}


def test_a_workspace_is_required():
    with pytest.raises(InvalidSpec, match="workspace is required: Unsloth needs a workspace"):
        FineTune(
            model="m",
            dataset=HuggingFaceDatasetInitializer(storage_uri="hf://a/b"),
            config=UnslothConfig(method="sft", resources_per_node=GPU),
        )


def test_no_runtime_of_the_trainer_contains_unsloth():
    trainer = BuiltinTrainer(config=UnslothConfig(method="sft"))
    with pytest.raises(
        InvalidSpec, match=r"trainer\.config cannot be 'a UnslothConfig': .* use FineTune with a workspace"
    ):
        TrainJob(trainer=trainer, runtime="torchtune-llama3.2-1b")

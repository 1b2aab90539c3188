"""Configurations of TRL: allowed values, refusals, arguments, and the identity of requests."""

from __future__ import annotations

import pytest

from trainjob import (
    BuiltinTrainer,
    FineTune,
    HuggingFaceDatasetInitializer,
    InvalidSpec,
    TorchTuneConfig,
    TrainJob,
    TRLConfig,
    TRLLoraConfig,
)
from trainjob.frameworks.trl.argument_table import METHODS, TRL_VERSIONS, get_arguments
from trainjob.manifest import spec_hash
from trainjob.manifest.steps import to_trainjob

FACTOR = 2


def length_reward(completions, **_):
    return [float(len(text)) for text in completions]


def scaled_reward(completions, **_):
    return [FACTOR * float(len(text)) for text in completions]


def step(**config) -> FineTune:
    return FineTune(model="any/model-1b", workspace="w", config={"framework": "trl", "method": "sft", **config})


def arguments_of(**config) -> list[str]:
    words = list(to_trainjob(step(**config), run="r").trainer.args)
    return words[words.index(config.get("method", "sft")) + 1 :]


@pytest.mark.parametrize("version", TRL_VERSIONS)
def test_every_method_has_a_table_with_the_arguments_of_the_fields(version):
    for method in METHODS:
        known = get_arguments(version, method)
        assert {"learning_rate", "num_train_epochs", "output_dir", "use_peft", "resume_from_checkpoint"} <= set(known)
    assert get_arguments(version, "sft")["packing"] == "bool"
    assert "packing" not in get_arguments(version, "dpo")


def test_fields_and_arguments_become_words_of_the_script():
    assert arguments_of(
        epochs=1.5,
        batch_size=4,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        packing=True,
        precision="fp16",
        peft_config={"lora_rank": 8, "target_modules": ["q_proj", "v_proj"], "use_dora": True},
        fsdp=True,
        arguments={
            "optim": "adafactor",
            "fsdp_config": {"version": 2},
            "warmup_steps": 10,
            "run_name": "$(HOME) $$(A)",
        },
    ) == [
        "--save_total_limit=2",
        "--logging_nan_inf_filter=false",
        "--num_train_epochs=1.5",
        "--per_device_train_batch_size=4",
        "--learning_rate=0.0001",
        "--lr_scheduler_type=cosine",
        "--packing=true",
        "--bf16=false",
        "--fp16=true",
        "--use_peft=true",
        "--lora_r=8",
        "--lora_target_modules",
        "q_proj",
        "v_proj",
        "--use_dora=true",
        "--fsdp",
        "--optim=adafactor",
        '--fsdp_config={"version": 2}',
        "--warmup_steps=10",
        "--run_name=$$(HOME) $$$$(A)",
    ]


def test_files_of_the_step_precede_the_method():
    request = FineTune(
        model="tiny",
        workspace="w",
        dataset_path="pairs",
        model_path="exported",
        output_path="dpo",
        config=TRLConfig(method="dpo", columns={"chosen": "good"}, eval_dataset_path="held", wheels_path="wheels"),
    )
    words = to_trainjob(request, run="r").trainer.args
    assert words[: words.index("dpo", words.index("--trl-version"))] == (
        *("--run", words[1]),
        *("--model-name", "tiny"),
        *("--model", "/workspace/exported"),
        *("--dataset", "/workspace/dataset/pairs"),
        *("--eval-dataset", "/workspace/dataset/held"),
        *("--output", "/workspace/output/dpo"),
        *("--columns", '{"chosen": "good"}'),
        *("--trl-version", "1.16.0"),
        *("--wheels", "/workspace/wheels"),
    )
    assert "--eval_strategy=epoch" in words


def test_a_run_that_cannot_resume_has_no_identifier():
    for config in ({"save_strategy": "no"}, {"arguments": {"save_only_model": True}}):
        assert not step(**config).can_resume
        assert "--run" not in to_trainjob(step(**config), run="r").trainer.args
    assert step().can_resume


def test_nodes_and_resources_apply_to_the_container():
    trainer = to_trainjob(step(num_nodes=2, resources_per_node={"gpu": 4})).trainer
    assert (trainer.num_nodes, trainer.num_proc_per_node, trainer.image) == (2, 4, None)


def test_the_framework_and_the_method_are_part_of_the_identity():
    steps = [step(epochs=2), step(epochs=2, method="dpo"), step(epochs=3)]
    torchtune = FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig(epochs=2))
    assert len({spec_hash(each) for each in (*steps, torchtune)}) == 4
    assert spec_hash(step(epochs=2)) == spec_hash(
        FineTune(model="any/model-1b", workspace="w", config=TRLConfig(method="sft", epochs=2))
    )


def test_the_source_of_a_reward_function_is_part_of_the_identity():
    def other(completions, **_):
        return [0.0 for _ in completions]

    hashes = {spec_hash(step(method="grpo", reward_functions=[reward])) for reward in (length_reward, other, "a.b")}
    assert len(hashes) == 3


REFUSED = {
    "unknown method": ({"method": "ppo"}, "config.method", "'sft', 'dpo', 'kto'"),
    "unknown framework": ({"framework": "axolotl"}, "config.framework", "torchtune, trl"),
    "unknown field": ({"learning_rat": 1}, "config.learning_rat", "did you mean learning_rate?"),
    "unknown argument": (
        {"arguments": {"warmup_stps": 1}},
        "config.arguments.warmup_stps",
        "TRL 1.16.0 sft has no such argument; did you mean warmup_steps",
    ),
    "argument of another method": ({"arguments": {"num_generations": 4}}, "config.arguments.num_generations", "sft"),
    "wrong type": ({"arguments": {"max_grad_norm": "much"}}, "config.arguments.max_grad_norm", "a number"),
    "bool for int": ({"arguments": {"dataset_num_proc": True}}, "config.arguments.dataset_num_proc", "a whole number"),
    "wrong choice": ({"lr_scheduler_type": "round"}, "config.lr_scheduler_type", "linear, cosine"),
    "item that is an option": ({"arguments": {"report_to": ["-x"]}}, "config.arguments.report_to", "start with -"),
    "typed field in arguments": ({"arguments": {"seed": 1}}, "config.arguments.seed", "give seed"),
    "LoRA without peft_config": (
        {"arguments": {"lora_r": 8}},
        "config.arguments.lora_r",
        "give peft_config=TRLLoraConfig(lora_rank=...)",
    ),
    "path of the step": ({"arguments": {"output_dir": "/tmp"}}, "config.arguments.output_dir", "give output_path"),
    "token": ({"arguments": {"hub_token": "hf_secret"}}, "config.arguments.hub_token", "ExportModel"),
    "packing for DPO": ({"method": "dpo", "packing": True}, "config.packing", "TRL 1.16.0 dpo has no such argument"),
    "4 and 8 bits": (
        {"peft_config": {"load_in_4bit": True, "load_in_8bit": True}},
        "config.peft_config.load_in_8bit",
        "not both",
    ),
    "4 bits on a CPU": (
        {"peft_config": {"load_in_4bit": True}, "arguments": {"use_cpu": True}},
        "config.peft_config.load_in_4bit",
        "requires a GPU",
    ),
    "one kept checkpoint": (
        {"arguments": {"save_total_limit": 1}},
        "config.arguments.save_total_limit",
        "at least 2",
    ),
    "GRPO without rewards": ({"method": "grpo"}, "config.reward_functions", "score answers"),
    "rewards for SFT": ({"reward_functions": ["a.b"]}, "config.reward_functions", "only grpo and rloo"),
    "reward with a foreign name": (
        {"method": "rloo", "reward_functions": [scaled_reward]},
        "config.reward_functions",
        "it uses FACTOR from its module: import such names inside it",
    ),
    "unknown reward": ({"method": "grpo", "reward_functions": ["fast"]}, "config.reward_functions", "a dotted name"),
    "distillation without a teacher": ({"method": "distillation"}, "config.teacher_path", "larger model"),
    "evaluation without rows": ({"eval_strategy": "steps"}, "config.eval_strategy", "eval_dataset_path"),
    "path out of the workspace": ({"eval_dataset_path": "../x"}, "config.eval_dataset_path", "without '..'"),
    "columns twice": ({"columns": {"prompt": "a", "completion": "a"}}, "config.columns", "each once"),
    "server of vLLM": (
        {"method": "grpo", "use_vllm": True, "arguments": {"vllm_server_base_url": "http://vllm:8000"}},
        "config.arguments.vllm_server_base_url",
        "without a server",
    ),
    "vLLM without use_vllm": (
        {"method": "rloo", "arguments": {"vllm_tensor_parallel_size": 2}},
        "config.arguments.vllm_tensor_parallel_size",
        "it has an effect with use_vllm=True only",
    ),
    "unknown version": ({"trl_version": "0.9.0"}, "config.trl_version", "1.16.0"),
    "password in the index": ({"pip_index_url": "https://me:pw@index/simple"}, "config.pip_index_url", "PIP_INDEX_URL"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_refused_with_field_and_rule(case):
    config, field, rule = REFUSED[case]
    with pytest.raises(InvalidSpec) as raised:
        step(**config)
    found = {problem.field: problem for problem in raised.value.problems}
    assert field in found, found
    assert rule in found[field].allowed
    assert "secret" not in str(raised.value) and "me:pw" not in str(raised.value)


def test_a_workspace_is_required():
    with pytest.raises(InvalidSpec, match="workspace is required: TRL needs a workspace"):
        FineTune(
            model="m",
            dataset=HuggingFaceDatasetInitializer(storage_uri="hf://a/b"),
            config=TRLConfig(method="sft"),
        )


def test_no_runtime_of_the_trainer_contains_trl():
    trainer = BuiltinTrainer(config=TRLConfig(method="sft"))
    with pytest.raises(InvalidSpec, match=r"trainer\.config cannot be 'a TRLConfig': .* use FineTune with a workspace"):
        TrainJob(trainer=trainer, runtime="torchtune-llama3.2-1b")


def test_a_name_of_a_model_is_metadata():
    assert step().model == "any/model-1b"
    with pytest.raises(InvalidSpec, match="model cannot be 'a b'"):
        FineTune(model="a b", workspace="w", config=TRLConfig(method="sft"))


def test_a_merged_model_is_saved_unless_disabled():
    for merge in (True, False):
        request = step(peft_config=TRLLoraConfig(lora_rank=4, merge=merge))
        assert ("--merge" in to_trainjob(request).trainer.args) is merge


def test_a_reward_function_of_another_type_is_refused_by_its_position():
    with pytest.raises(InvalidSpec) as raised:
        TRLConfig(method="grpo", reward_functions=[5])
    assert {problem.field for problem in raised.value.problems} == {"reward_functions[0]"}

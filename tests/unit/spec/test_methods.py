"""Arguments of TorchTune for preference tuning, distillation, quantization-aware training and quantization."""

from __future__ import annotations

import pytest

from trainjob import (
    Distillation,
    FineTune,
    InvalidSpec,
    LoraConfig,
    PreferenceTuning,
    Quantization,
    QuantizationAware,
    TorchTuneChatDataset,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TorchTunePreferenceDataset,
)
from trainjob.manifest import spec_hash, to_trainjob

LORA = LoraConfig()
DPO, QAT = {"preference_tuning": PreferenceTuning()}, {"quantization_aware": QuantizationAware()}
QUANTIZED = {"quantization": Quantization(group_size=32)}
TEACHER = {"distillation": Distillation(teacher="llama3.2-3b", teacher_path="teacher/model", ratio=0.3)}


def recipe_arguments(model="llama3.2-1b", **config):
    step = FineTune(model=model, workspace="w", config=TorchTuneConfig(**config))
    return [word for word in to_trainjob(step).trainer.args if not word.startswith("--rdzv")]


@pytest.mark.parametrize(
    ("config", "recipe", "configuration"),
    [
        ({**DPO, "peft_config": LORA}, "lora_dpo_single_device", "llama3_1/8B_lora_dpo_single_device"),
        ({**DPO, "peft_config": LORA, "num_proc_per_node": 2}, "lora_dpo_distributed", "llama3_1/8B_lora_dpo"),
        (DPO, "full_dpo_distributed", "llama3_1/8B_full_dpo"),
        (
            {**TEACHER, "peft_config": LORA},
            "knowledge_distillation_single_device",
            "llama3_2/8B_to_1B_KD_lora_single_device",
        ),
        (
            {**TEACHER, "peft_config": LORA, "resources_per_node": {"gpu": 2}},
            "knowledge_distillation_distributed",
            "llama3_2/8B_to_1B_KD_lora_distributed",
        ),
        (QAT, "qat_distributed", "llama3/8B_qat_full"),
        (QUANTIZED, "quantize", "quantization"),
    ],
)
def test_recipe_and_configuration(config, recipe, configuration):
    assert recipe_arguments(**config)[:4] == ["run", recipe, "--config", configuration]


def test_preference_tuning_configures_the_model_completely():
    pairs = TorchTunePreferenceDataset(source="json", column_map={"chosen": "good", "rejected": "bad"})
    method = PreferenceTuning(beta=0.2, label_smoothing=0.1)
    found = recipe_arguments(
        "llama3.2-3b", preference_tuning=method, peft_config=LoraConfig(lora_rank=8), dataset_preprocess_config=pairs
    )
    assert found[4:] == [
        "output_dir=/workspace/output",
        "tokenizer.path=/workspace/model/original/tokenizer.model",
        "checkpointer.checkpoint_dir=/workspace/model",
        "model=torchtune.models.llama3_2.lora_llama3_2_3b",
        "tokenizer=torchtune.models.llama3.llama3_tokenizer",
        "checkpointer=torchtune.training.FullModelHFCheckpointer",
        "checkpointer.checkpoint_files=[model-00001-of-00002.safetensors,model-00002-of-00002.safetensors]",
        "checkpointer.model_type=LLAMA3_2",
        "loss.beta=0.2",
        "loss.label_smoothing=0.1",
        "model.lora_rank=8",
        "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
        "dataset=torchtune.datasets.preference_dataset",
        "dataset.source=json",
        "dataset.data_dir=/workspace/dataset/data",
        "dataset.column_map={'chosen': 'good', 'rejected': 'bad'}",
    ]


def test_without_adapters_the_reference_is_a_second_model():
    found = recipe_arguments("qwen2.5-1.5b", **DPO)
    assert [word for word in found if word.startswith("ref_")] == [
        "ref_checkpointer.checkpoint_dir=/workspace/model",
        "ref_checkpointer.checkpoint_files=[model.safetensors]",
        "ref_checkpointer.model_type=QWEN2",
    ]
    assert "tokenizer=torchtune.models.qwen2_5.qwen2_5_tokenizer" in found
    assert "model=torchtune.models.qwen2_5.qwen2_5_1_5b_instruct" in found
    assert {"dataset=torchtune.datasets.preference_dataset", "dataset.source=parquet"} <= set(found)


def test_the_teacher_is_configured_like_the_model():
    found = recipe_arguments(**TEACHER, peft_config=LORA)
    assert [word for word in found if word.startswith(("teacher", "kd"))] == [
        "teacher_model=torchtune.models.llama3_2.llama3_2_3b",
        "teacher_checkpointer.checkpoint_dir=/workspace/teacher/model",
        "teacher_checkpointer.checkpoint_files=[model-00001-of-00002.safetensors,model-00002-of-00002.safetensors]",
        "teacher_checkpointer.model_type=LLAMA3_2",
        "kd_ratio=0.3",
    ]
    step = FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig(**TEACHER, peft_config=LORA))
    assert (
        "/workspace/teacher/model" in to_trainjob(step, run="r").trainer.args
    )  # another teacher makes it another training


def test_quantization_aware():
    method = {"quantization_aware": QuantizationAware(group_size=32)}
    assert {"quantizer.groupsize=32", "custom_sharded_layers=[]"} < set(recipe_arguments(**method))
    # The embeddings of this model are not tied.
    assert "custom_sharded_layers=[]" not in recipe_arguments("llama3.3-70b", **method, num_proc_per_node=8)


def test_a_model_is_quantized_without_data():
    step = FineTune(
        model="llama3.2-3b",
        workspace="w",
        model_path="tuned",
        output_path="small",
        config=TorchTuneConfig(**QUANTIZED, dtype="fp32", overrides=("device=cpu",)),
    )
    job = to_trainjob(step, run="r")  # a quantization has nothing to resume
    assert job.trainer.command == ("tune",)
    assert job.trainer.args == (
        "run",
        "quantize",
        "--config",
        "quantization",
        "output_dir=/workspace/output/small",
        "checkpointer.checkpoint_dir=/workspace/tuned",
        "model=torchtune.models.llama3_2.llama3_2_3b",
        "checkpointer.checkpoint_files=[model-00001-of-00002.safetensors,model-00002-of-00002.safetensors]",
        "checkpointer.model_type=LLAMA3_2",
        "dtype=fp32",
        "quantizer.groupsize=32",
        "device=cpu",
    )
    # It runs in one process, although trainings of this model need several.
    assert recipe_arguments("llama3.3-70b", **QUANTIZED)[1] == "quantize"


def test_conversations():
    rows = TorchTuneChatDataset(source="json", conversation_column="turns: all", conversation_style="sharegpt")
    found = recipe_arguments(dataset_preprocess_config=rows)
    assert [word for word in found if word.startswith("dataset")] == [
        "dataset=torchtune.datasets.chat_dataset",
        "dataset.source=json",
        "dataset.data_dir=/workspace/dataset/data",
        'dataset.conversation_column="turns: all"',
        "dataset.conversation_style=sharegpt",
    ]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ({"source": "json"}, TorchTuneInstructDataset),
        ({"kind": "chat", "conversation_column": "c", "conversation_style": "openai"}, TorchTuneChatDataset),
        ({"kind": "preference"}, TorchTunePreferenceDataset),
    ],
)
def test_a_dataset_given_as_a_dict_is_converted_by_its_kind(rows, kind):
    assert isinstance(TorchTuneConfig(dataset_preprocess_config=rows).dataset_preprocess_config, kind)


def test_model_path_selects_the_model_of_an_earlier_training():
    step = FineTune(model="llama3.2-1b", workspace="w", model_path="tuned/", config=TorchTuneConfig(**DPO))
    found = to_trainjob(step).trainer.args
    paths = {"tokenizer.path": "/original/tokenizer.model", "checkpointer.checkpoint_dir": ""}
    assert {f"{key}=/workspace/tuned{end}" for key, end in paths.items()} < set(found)
    assert "ref_checkpointer.checkpoint_dir=/workspace/tuned" in found


def fine_tune(model="llama3.2-1b", **config):
    return FineTune(model=model, workspace="w", config=TorchTuneConfig(**config))


def distill(teacher, model="llama3.2-1b", **more):
    return fine_tune(
        model, distillation=Distillation(teacher=teacher, teacher_path="t"), **{"peft_config": LORA, **more}
    )


@pytest.mark.parametrize(
    ("make", "field", "value", "allowed"),
    [
        (lambda: fine_tune(**DPO, **QAT), "config.quantization_aware", "QuantizationAware", "preference_tuning"),
        (
            lambda: FineTune(model="llama3.2-1b", dataset="hf://a/b", config=TorchTuneConfig(**DPO)),
            "config.preference_tuning",
            "PreferenceTuning",
            "FineTune(workspace=...)",
        ),
        (
            lambda: fine_tune("llama3.3-70b", **DPO, num_nodes=2, resources_per_node={"gpu": 8}),
            "config.num_nodes",
            "2",
            "one node",
        ),
        (
            lambda: fine_tune(**DPO, loss="torchtune.modules.loss.CEWithChunkedOutputLoss"),
            "config.loss",
            "CE",
            "its own",
        ),
        (lambda: distill("llama3.2-3b", peft_config=None), "config.peft_config", "None", "LoraConfig()"),
        (lambda: fine_tune(**QUANTIZED, epochs=2), "config.epochs", "2", "trains nothing"),
        (lambda: fine_tune(**QUANTIZED, peft_config=LORA), "config.peft_config", "LoraConfig", "trains nothing"),
        (lambda: fine_tune(**QUANTIZED, resources_per_node={"gpu": 2}), "config.num_proc_per_node", "2", "one process"),
        (
            lambda: FineTune(model="llama3.2-1b", dataset="hf://a/b", config=TorchTuneConfig(**QUANTIZED)),
            "config.quantization",
            "Quantization",
            "FineTune(workspace=...)",
        ),
        (lambda: Quantization(group_size=48), "group_size", "48", "256"),
        (lambda: QuantizationAware(group_size=16), "group_size", "16", "32, 64"),
        (lambda: fine_tune(**QAT, peft_config=LORA), "config.peft_config", "LoraConfig", "all weights"),
        (lambda: distill("qwen2.5-1.5b"), "config.distillation.teacher", "qwen", "llama3.1-8b"),
        (lambda: distill("llama3.2-3b", "qwen2.5-1.5b"), "config.distillation.teacher", "llama3.2-3b", "qwen2.5-1.5b"),
        (
            lambda: fine_tune(**DPO, dataset_preprocess_config=TorchTuneInstructDataset()),
            "config.dataset_preprocess_config",
            "TorchTuneInstructDataset",
            "TorchTunePreferenceDataset",
        ),
        (
            lambda: fine_tune(dataset_preprocess_config=TorchTunePreferenceDataset()),
            "config.dataset_preprocess_config",
            "TorchTunePreferenceDataset",
            "preference_tuning",
        ),
        (
            lambda: TorchTunePreferenceDataset(column_map={"input": "a"}),
            "column_map.input",
            "a",
            "chosen and rejected",
        ),
        (
            lambda: fine_tune(dataset_preprocess_config={"kind": "text"}),
            "dataset_preprocess_config",
            "dict",
            "preference",
        ),
        (
            lambda: fine_tune(dataset_preprocess_config={"kind": "preference", "column_map": {"x": "y"}}),
            "dataset_preprocess_config.column_map.x",
            "y",
            "chosen",
        ),
        (lambda: Distillation(teacher="llama3.1-8b", teacher_path="../t"), "teacher_path", "../t", "teacher/model"),
        (
            lambda: FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", model_path=""),
            "model_path",
            "''",
            "such as model",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", model_path="output/epoch_1"
            ),
            "model_path",
            "output/epoch_1",
            "exported first",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://a/b", model_path="x"
            ),
            "model_path",
            "x",
            "with a workspace",
        ),
    ],
)
def test_a_combination_without_a_recipe_is_refused(make, field, value, allowed):
    with pytest.raises(InvalidSpec) as caught:
        make()
    [problem] = caught.value.problems
    assert problem.field == field
    assert value in problem.value
    assert allowed in problem.allowed


def test_each_method_changes_the_hash():
    ways = [{}, DPO, QAT, QUANTIZED, {"preference_tuning": PreferenceTuning(beta=0.2)}]
    assert len({spec_hash(fine_tune(**way)) for way in ways}) == len(ways)

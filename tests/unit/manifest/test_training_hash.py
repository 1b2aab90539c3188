"""Fields that do not change the result of a step: each field of each request is in one of two classes."""

from __future__ import annotations

import json

import pytest

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    TrainJob,
    TrainJobManifest,
    spec,
)
from trainjob.frameworks import llamafactory, torchtune, trl, unsloth
from trainjob.frameworks.llamafactory.argument_table import LLAMAFACTORY_VERSIONS
from trainjob.frameworks.llamafactory.argument_table import get_arguments as get_llamafactory_arguments
from trainjob.frameworks.transformers_config import EVALUATION_ARGUMENTS, OPERATIONAL_ARGUMENTS
from trainjob.frameworks.trl import argument_table
from trainjob.manifest import spec_hash, training_hash, weight_fields
from trainjob.manifest.identity import UNHASHED_FIELDS
from trainjob.manifest.training_identity import CONTINUED_FIELDS, OPERATIONAL_FIELDS
from trainjob.spec import PackedCode

CONFIGS = (torchtune.TorchTuneConfig, trl.TRLConfig, llamafactory.LLaMAFactoryConfig, unsloth.UnslothConfig)
DATASETS = (spec.HuggingFaceDatasetInitializer, spec.S3DatasetInitializer, spec.DataCacheInitializer)
CLASSES = {
    "": (InitializeDataset, InitializeModel, FineTune, ExportModel, TrainJob, TrainJobManifest),
    "config": CONFIGS,
    "trainer": (BuiltinTrainer, CustomTrainer, CustomTrainerContainer),
    "dataset": DATASETS,
    "initializer.dataset": DATASETS,
}
# A new field belongs to this table if it decides the weights of a training, or the files of another step. Otherwise, it
# belongs to OPERATIONAL_FIELDS if the result is the same for any value of it, else to CONTINUED_FIELDS.
DATASET_FIELDS = """
    endpoint env iam_role ignore_patterns metadata_loc num_data_nodes region role_arn secret storage_uri
"""
RESULT_FIELDS = {
    "": """
        adapter after_jobs any_run columns config dataset dataset_path destination endpoint env eval_fraction eval_split
        ignore_patterns initializer manifest metadata model model_initializer model_path region registry resume_from
        revision role_arn split storage_uri subset trainer
    """,
    "config": """
        arguments batch_size columns dataset_preprocess_config deepspeed distillation dtype fsdp
        gradient_accumulation_steps learning_rate llamafactory_version loss lr_scheduler_type max_length
        max_steps_per_epoch method num_nodes overrides packing peft_config precision preference_tuning quantization
        quantization_aware reward_functions seed teacher_path template trl_version unsloth_version use_vllm weight_decay
    """,
    "trainer": "args code command config env func func_args module resume_from script",
    "dataset": DATASET_FIELDS,
    "initializer.dataset": DATASET_FIELDS,
}


def list_classes(path, model):
    operational, continued = set(OPERATIONAL_FIELDS.get(path, ())), set(CONTINUED_FIELDS.get(path, ()))
    if path == "config":
        operational, continued = ({*each} for each in (model.operational_fields, model.continued_fields))
    return operational, continued, set(RESULT_FIELDS[path].split()), set(UNHASHED_FIELDS) if not path else set()


@pytest.mark.parametrize(
    ("path", "model"), [(path, model) for path, models in CLASSES.items() for model in models], ids=str
)
def test_each_field_is_in_exactly_one_of_the_classes(path, model):
    classes = list_classes(path, model)
    count = {name: sum(name in names for names in classes) for name in model.model_fields}
    assert count == dict.fromkeys(model.model_fields, 1)


@pytest.mark.parametrize("path", CLASSES)
def test_each_name_in_a_class_is_a_field(path):
    fields = {name for model in CLASSES[path] for name in model.model_fields}
    for model in CLASSES[path]:
        given = {name.partition(".")[0] for names in list_classes(path, model) for name in names}
        assert given <= fields


def test_each_argument_in_a_class_is_one_of_trl_or_llamafactory():
    known = {name for method in argument_table.METHODS for name in argument_table.get_arguments("1.16.0", method)}
    known |= {*get_llamafactory_arguments(LLAMAFACTORY_VERSIONS[-1])}
    assert {*OPERATIONAL_ARGUMENTS, *EVALUATION_ARGUMENTS} <= known


def fine_tune(config=None, **values):
    given = {"framework": "trl", "method": "sft", **(config or {})}
    return FineTune(**{"model": "m", "workspace": "w", **values}, config=given)


def torchtune_job(**config):
    return TrainJob(trainer=BuiltinTrainer(config=config), runtime="torchtune-llama3.2-1b")


def container(**values):
    return TrainJob(trainer=CustomTrainerContainer(**values))


def cached(**values):
    source = {"storage_uri": "cache://a/b", "metadata_loc": "m", "num_data_nodes": 2, **values}
    return TrainJob(runtime="own", initializer={"dataset": source})


def manifest(metadata=None, trainer=None, **values):
    content = {"runtimeRef": {"name": "torch-distributed"}, **({"trainer": trainer} if trainer else {}), **values}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return TrainJobManifest(manifest={**head, "metadata": metadata or {"name": "own"}, "spec": content})


MEMORY, GPUS = {"memory": "8Gi"}, {"gpu": 2}
SHM = {"name": "shm", "mount_path": "/dev/shm", "source": {"emptyDir": {"medium": "Memory"}}}


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (fine_tune(), fine_tune({"resources_per_node": MEMORY})),
        (fine_tune({"resources_per_node": {"gpu": 1}}), fine_tune({"num_proc_per_node": 1})),
        (fine_tune({"resources_per_node": GPUS}), fine_tune({"num_proc_per_node": 2, "resources_per_node": MEMORY})),
        (fine_tune(), fine_tune(labels={"a": "b"}, annotations={"c": "d"}, deadline=60, max_restarts=3, image="i")),
        (fine_tune(), fine_tune(queue="q", placement={"node_selector": {"a": "b"}}, tracking=None, name="n")),
        (fine_tune(), fine_tune(env={"NCCL_DEBUG": "INFO"})),
        (fine_tune(), fine_tune({"save_strategy": "steps", "save_steps": 5, "gradient_checkpointing": True})),
        (
            fine_tune({"arguments": {"warmup_steps": 1}}),
            fine_tune({"arguments": {"warmup_steps": 1, "save_total_limit": 3}}),
        ),
        (torchtune_job(), torchtune_job(resources_per_node=MEMORY)),
        (torchtune_job(overrides=["a=b"]), torchtune_job(overrides=["a=b", "compile=True"])),
        (container(command=["a"]), container(command=["a"], image="i", resources_per_node=MEMORY)),
        (container(env={"RATE": "2"}), container(env={"RATE": "2", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "2"})),
        (cached(), cached(head_cpu="1", head_mem="1Gi", worker_cpu="1", worker_mem="1Gi")),
        (manifest(), manifest({"name": "other", "labels": {"a": "b"}}, suspend=True, managedBy="m")),
        (manifest(), manifest(trainer={"image": "i", "resourcesPerNode": {"limits": MEMORY}})),
        (
            manifest(trainer={"numProcPerNode": 2}),
            manifest(trainer={"resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}}),
        ),
    ],
)
def test_operational_fields_change_the_request_and_not_the_training(step, changed):
    assert training_hash(step) == training_hash(changed)
    assert spec_hash(step) != spec_hash(changed) or step.name != changed.name


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (fine_tune(), fine_tune({"epochs": 2})),
        (fine_tune(), fine_tune({"resources_per_node": GPUS})),
        (fine_tune(), fine_tune({"num_nodes": 2})),
        (fine_tune(), fine_tune({"max_steps": 2})),
        (container(), container(env={"RATE": "2"})),
        (fine_tune(), fine_tune(model="other")),
        (torchtune_job(), torchtune_job(epochs=2)),
        (container(), container(num_nodes=2)),
        (container(), container(command=["a"])),
        (TrainJob(trainer=CustomTrainer(func=fine_tune)), TrainJob(trainer=CustomTrainer(func=container))),
        (
            TrainJob(trainer=CustomTrainer(func=fine_tune, func_args={"image": "a"})),
            TrainJob(trainer=CustomTrainer(func=fine_tune, func_args={"image": "b"})),
        ),
        (manifest(), manifest(trainer={"args": ["a"]})),
        (manifest(), manifest(trainer={"numProcPerNode": 2})),
        (manifest(), manifest(podTemplateOverrides=[{"targetJobs": [{"name": "node"}]}])),
    ],
)
def test_other_fields_make_another_training(step, changed):
    assert training_hash(step) != training_hash(changed)


def function(**values):
    return TrainJob(trainer=CustomTrainer(func=fine_tune, resume=True, **values), workspace="w")


LORA = {"peft_config": {}}
GRPO = {"method": "grpo", "reward_functions": ["a.b"]}


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (fine_tune(), fine_tune({"max_steps": 9, "eval_dataset_path": "held", "arguments": {"eval_delay": 1}})),
        (fine_tune(), fine_tune({"epochs": 9}, model="other", output_path="o", workspace="v", runtime="r")),
        (fine_tune(), fine_tune(volumes=[SHM], secret="s", resume=False)),
        (fine_tune(LORA), fine_tune({"peft_config": {"merge": False}})),
        (fine_tune(), fine_tune({"batch_size": 4, "gradient_accumulation_steps": 2})),
        (fine_tune(), fine_tune({"batch_size": 4, "num_nodes": 2})),
        (fine_tune(), fine_tune({"batch_size": 2, "num_nodes": 2, "num_proc_per_node": 2})),
        (function(), function(image="i", env={"NCCL_DEBUG": "INFO"}, packages_to_install=["a"])),
        (function(num_nodes=4), function(num_nodes=2, num_proc_per_node=2)),
    ],
)
def test_a_training_continues_although_these_fields_change(step, changed):
    assert weight_fields(step) == weight_fields(changed)
    assert spec_hash(step) != spec_hash(changed)


@pytest.mark.parametrize(
    ("step", "changed", "field"),
    [
        (fine_tune(), fine_tune({"learning_rate": 1e-4}), "config.learning_rate"),
        (fine_tune(), fine_tune({"batch_size": 4}), "samples_per_step"),
        (fine_tune(GRPO), fine_tune({**GRPO, "batch_size": 8}), "config.batch_size"),
        (fine_tune(GRPO), fine_tune({**GRPO, "num_nodes": 2}), "processes"),
        (fine_tune(), fine_tune(LORA), "config.peft_config"),
        (fine_tune(LORA), fine_tune({"peft_config": {"lora_rank": 4}}), "config.peft_config.lora_rank"),
        (fine_tune(), fine_tune({"arguments": {"warmup_steps": 1}}), "config.arguments.warmup_steps"),
        (fine_tune(), fine_tune(dataset_path="other"), "dataset_path"),
        (function(), function(func_args={"config": 1}), "trainer.func_args.config"),
        (function(), function(num_nodes=2), "processes"),
        (function(), function(env={"RATE": "2"}), "trainer.env.RATE"),
    ],
)
def test_a_training_starts_anew_if_these_fields_change(step, changed, field):
    one, other = weight_fields(step), weight_fields(changed)
    assert {name for name in {*one, *other} if one.get(name) != other.get(name)} <= {field, "config.peft_config"}
    assert one.get(field) != other.get(field)


def test_the_model_of_torchtune_decides_the_recipe():
    names = ("llama3.2-1b", "qwen2.5-1.5b")
    found = [weight_fields(FineTune(model=name, workspace="w", config=torchtune.TorchTuneConfig())) for name in names]
    assert [each["model"] for each in found] == list(names)
    assert all(each["framework"] == "torchtune" for each in found)


def test_long_values_are_hashed():
    fields = weight_fields(function(func_args={"text": "a" * 200}))
    assert fields["trainer.func_args.text"].startswith("sha256:")
    assert fields["function"].startswith("sha256:")
    assert all(len(json.dumps(value)) < 100 for value in fields.values())


def with_code(**fields):
    return container(command=("python", "train.py"), code=PackedCode(**{"sha256": "12" * 32, **fields}))


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": "abc", "branch": "main", "modified": True},
        {"archive": "AAAA", "size": 3, "files": 1, "path": "/home/me/project"},
        {"config_map": "trainjob-code-12"},
        {"uri": f"s3://models/code-{'12' * 32}.tar.gz", "secret": "s3", "endpoint": "https://minio.example.org"},
    ],
)
def test_the_place_and_the_commit_of_code_are_in_no_identity(fields):
    assert spec_hash(with_code(**fields)) == spec_hash(with_code())
    assert training_hash(with_code(**fields)) == training_hash(with_code())
    assert weight_fields(with_code(**fields)) == weight_fields(with_code())


@pytest.mark.parametrize("fields", [{"sha256": "34" * 32}, {"requirements": "uv.lock"}])
def test_other_code_is_another_request_with_other_weights(fields):
    assert spec_hash(with_code(**fields)) != spec_hash(with_code())
    assert training_hash(with_code(**fields)) != training_hash(with_code())
    assert weight_fields(with_code(**fields)) != weight_fields(with_code())
    assert weight_fields(with_code())["trainer.code.sha256"] == "12" * 32


def test_code_that_is_not_packed_has_no_identity():
    with pytest.raises(InvalidSpec, match=r"trainer.code cannot be .*it is not packed"):
        spec_hash(container(command=("python", "train.py"), code="."))

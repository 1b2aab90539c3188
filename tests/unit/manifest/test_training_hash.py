"""Fields that do not change the result of a step: each field of each request is in one of two classes."""

from __future__ import annotations

import pytest

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    TrainJob,
    TrainJobManifest,
    spec,
)
from trainjob.frameworks import llamafactory, torchtune, trl, unsloth
from trainjob.manifest import spec_hash, training_hash
from trainjob.manifest.identity import _UNHASHED_FIELDS, OPERATIONAL_FIELDS

CONFIGS = (torchtune.TorchTuneConfig, trl.TRLConfig, llamafactory.LLaMAFactoryConfig, unsloth.UnslothConfig)
DATASETS = (spec.HuggingFaceDatasetInitializer, spec.S3DatasetInitializer, spec.DataCacheInitializer)
CLASSES = {
    "": (InitializeDataset, InitializeModel, FineTune, ExportModel, TrainJob, TrainJobManifest),
    "config": CONFIGS,
    "trainer": (BuiltinTrainer, CustomTrainer, CustomTrainerContainer),
    "trainer.config": (torchtune.TorchTuneConfig,),
    "dataset": DATASETS,
    "initializer.dataset": DATASETS,
}
# A new field belongs to this table if another value of it can change the result, else to OPERATIONAL_FIELDS.
CONFIG_FIELDS = """
    arguments attn_implementation batch_size columns dataset_preprocess_config deepspeed distillation dtype epochs
    eval_dataset_path eval_steps eval_strategy fsdp gradient_accumulation_steps gradient_checkpointing learning_rate
    llamafactory_version loss lr_scheduler_type max_length max_steps max_steps_per_epoch method num_nodes overrides
    packing peft_config pip_index_url precision preference_tuning quantization quantization_aware reward_functions
    save_steps save_strategy seed teacher_path template trl_version unsloth_version use_vllm wheels_path
"""
DATASET_FIELDS = """
    endpoint iam_role ignore_patterns metadata_loc num_data_nodes region role_arn secret storage_uri
"""
TRAINING_FIELDS = {
    "": """
        adapter after_jobs any_run config dataset dataset_path destination endpoint env ignore_patterns initializer
        manifest metadata model model_check model_initializer model_path output_path region registry resume revision
        role_arn runtime secret storage_uri trainer volumes workspace
    """,
    "config": CONFIG_FIELDS,
    "trainer": "args command config env func func_args num_nodes packages_to_install pip_index_urls resume",
    "trainer.config": CONFIG_FIELDS,
    "dataset": DATASET_FIELDS,
    "initializer.dataset": DATASET_FIELDS,
}


@pytest.mark.parametrize(
    ("path", "model"), [(path, model) for path, models in CLASSES.items() for model in models], ids=str
)
def test_each_field_is_in_exactly_one_of_the_classes(path, model):
    unhashed = set(_UNHASHED_FIELDS) if not path else set()
    classes = (set(OPERATIONAL_FIELDS[path]), set(TRAINING_FIELDS[path].split()), unhashed)
    count = {name: sum(name in names for names in classes) for name in model.model_fields}
    assert count == dict.fromkeys(model.model_fields, 1)


@pytest.mark.parametrize("path", CLASSES)
def test_each_name_in_a_class_is_a_field(path):
    fields = {name for model in CLASSES[path] for name in model.model_fields}
    assert fields >= set(OPERATIONAL_FIELDS[path])
    assert path == "trainer.config" or fields >= set(TRAINING_FIELDS[path].split())


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


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (fine_tune(), fine_tune({"resources_per_node": MEMORY})),
        (fine_tune({"resources_per_node": {"gpu": 1}}), fine_tune({"num_proc_per_node": 1})),
        (fine_tune({"resources_per_node": GPUS}), fine_tune({"num_proc_per_node": 2, "resources_per_node": MEMORY})),
        (fine_tune(), fine_tune(labels={"a": "b"}, annotations={"c": "d"}, deadline=60, max_restarts=3, image="i")),
        (fine_tune(), fine_tune(queue="q", placement={"node_selector": {"a": "b"}}, tracking=None, name="n")),
        (torchtune_job(), torchtune_job(resources_per_node=MEMORY)),
        (container(command=["a"]), container(command=["a"], image="i", resources_per_node=MEMORY)),
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
        (fine_tune(), fine_tune(env={"NCCL_DEBUG": "INFO"})),
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

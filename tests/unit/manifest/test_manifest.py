"""Manifests of every kind of request, checked with the Trainer's own models; names and hashes."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    DataCacheInitializer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Initializer,
    InvalidSpec,
    LoraConfig,
    Placement,
    Queue,
    SecretKeyReference,
    SecretReference,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TrainJob,
    Volume,
    WorkspaceVolume,
)
from trainjob.manifest import build_trainjob, job_name, labels, spec_hash, to_trainjob
from trainjob.manifest.function import function_command
from trainjob.packing import create_zip


def manifest(step, **more):
    return build_trainjob(to_trainjob(step), name="n", namespace="ns", **more)


def tune_arguments(model="llama3.2-1b", **config):
    step = FineTune(model=model, workspace="w", config=TorchTuneConfig(**config))
    return manifest(step)["spec"]["trainer"]["args"]


LORA, QLORA, DORA = LoraConfig(), LoraConfig(quantize_base=True), LoraConfig(use_dora=True, quantize_base=True)


@pytest.mark.parametrize(
    ("model", "config", "recipe", "configuration"),
    [
        ("llama3.2-1b", {}, "full_finetune_single_device", "llama3_2/1B_full_single_device"),
        ("llama3.2-1b", {"peft_config": LORA}, "lora_finetune_single_device", "llama3_2/1B_lora_single_device"),
        ("llama3.2-3b", {"peft_config": QLORA}, "lora_finetune_single_device", "llama3_2/3B_qlora_single_device"),
        ("llama3.2-1b", {"peft_config": DORA}, "lora_finetune_single_device", "llama3_2/1B_lora_single_device"),
        ("qwen2.5-1.5b", {"resources_per_node": {"gpu": 2}}, "full_finetune_distributed", "qwen2_5/1.5B_full"),
        (
            "llama3.2-1b",
            {"resources_per_node": {"gpu": 4}, "peft_config": LORA},
            "lora_finetune_distributed",
            "llama3_2/1B_lora",
        ),
        ("llama3.2-1b", {"num_proc_per_node": 2}, "full_finetune_distributed", "llama3_2/1B_full"),
        (
            "llama3.3-70b",
            {"num_nodes": 2, "resources_per_node": {"gpu": 8}},
            "full_finetune_distributed",
            "llama3_3/70B_full_multinode",
        ),
    ],
)
def test_recipe_and_configuration(model, config, recipe, configuration):
    words = tune_arguments(model, **config)
    rendezvous = [word for word in words if word.startswith("--rdzv")]
    assert words[:1] + words[1 + len(rendezvous) : 4 + len(rendezvous)] == ["run", recipe, "--config", configuration]
    # torchrun's flags are for distributed recipes only; single-device ones refuse them.
    assert bool(rendezvous) == recipe.endswith("_distributed")


def test_the_command_does_not_make_the_plugin_choose_the_recipe():
    trainer = manifest(FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w"))["spec"][
        "trainer"
    ]
    assert trainer["command"] == ["tune"]
    assert trainer["numNodes"] == trainer["numProcPerNode"] == 1


def test_arguments_of_a_fine_tuning():
    words = tune_arguments(
        "qwen2.5-1.5b",
        dtype="bf16",
        epochs=3,
        seed=0,
        learning_rate=2e-5,
        peft_config=LoraConfig(lora_rank=16, quantize_base=False),
        dataset_preprocess_config=TorchTuneInstructDataset(
            split="train[:10%]", column_map={"input": "q", "output": "a"}
        ),
        overrides=["device=cpu", "~metric_logger.log_dir"],
    )
    assert words[4:] == [
        "output_dir=/workspace/output",
        "tokenizer.path=/workspace/model/vocab.json",
        "tokenizer.merges_file=/workspace/model/merges.txt",
        "checkpointer.checkpoint_dir=/workspace/model",
        "dtype=bf16",
        "epochs=3",
        "model.lora_rank=16",
        "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
        "dataset=torchtune.datasets.instruct_dataset",
        "dataset.source=parquet",
        "dataset.data_dir=/workspace/dataset/data",
        "dataset.split=train[:10%]",
        "dataset.column_map={'input': 'q', 'output': 'a'}",
        "seed=0",
        "optimizer.lr=2e-05",
        "device=cpu",
        "~metric_logger.log_dir",
    ]


def test_output_path_separates_trainings_that_share_a_workspace():
    tune = manifest(
        FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", output_path="tries/$(X)/")
    )["spec"]["trainer"]
    assert "output_dir=/workspace/output/tries/$$(X)" in tune["args"]
    export = manifest(ExportModel(workspace="w", destination="s3://b/x", output_path="tries/$(X)/"))["spec"]["trainer"]
    assert export["args"][export["args"].index("--output") + 1] == "/workspace/output/tries/$$(X)"


def test_an_override_of_the_dataset_keeps_only_its_path():
    words = tune_arguments(overrides=["dataset=torchtune.datasets.chat_dataset"])
    assert [word for word in words if word.startswith("dataset")] == [
        "dataset.data_dir=/workspace/dataset/data",
        "dataset=torchtune.datasets.chat_dataset",
    ]


def test_a_builtin_training_leaves_recipe_and_paths_to_the_plugin():
    step = FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        dataset="hf://org/name/sub/dir",
        model_initializer="hf://org/model",
    )
    spec = manifest(step)["spec"]
    assert spec["runtimeRef"]["name"] == "torchtune-llama3.2-1b"
    assert spec["trainer"]["command"] == ["tune", "run"]
    assert "dataset.data_dir=/workspace/dataset/sub/dir" in spec["trainer"]["args"]
    assert not [word for word in spec["trainer"]["args"] if word.startswith(("output_dir", "checkpointer"))]
    assert "runtimePatches" not in spec


# -- validation by the Trainer's own models ----------------------------------------------------------------------------

placements = st.builds(
    Placement,
    node_selector=st.dictionaries(st.sampled_from(["zone", "gpu"]), st.sampled_from(["a", "b"])),
    tolerations=st.lists(st.just({"key": "gpu", "operator": "Exists"}), max_size=1),
    service_account_name=st.sampled_from(["", "trainer"]),
    image_pull_secrets=st.lists(st.just("pull"), max_size=1),
)
volumes = st.lists(
    st.builds(
        Volume,
        name=st.sampled_from(["a", "b"]),
        source=st.just({"secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 256}]}}),
        mount_path=st.sampled_from(["/a", "/b", "/c/d", "/workspace/output"]),
        sub_path=st.sampled_from(["", "x/y"]),
        read_only=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda volume: volume.mount_path,
)
workspaces = st.sampled_from(
    [
        "w",
        WorkspaceVolume(claim="w", sub_path="x/y"),
        WorkspaceVolume(node_path="/srv"),
        WorkspaceVolume(node_path="/srv", sub_path="x"),
    ]
)
common = {
    "volumes": volumes,
    "queue": st.none() | st.builds(Queue, name=st.just("q"), priority_class=st.sampled_from(["", "high"])),
    "placement": st.none() | placements,
    "deadline": st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=3)),
}
references = st.none() | st.builds(
    SecretReference, name=st.just("s"), keys=st.sampled_from([{}, {"ACCESS_TOKEN": "token"}])
)
uris = st.sampled_from(["hf://org/name", "s3://bucket/a/b"])
configs = st.builds(
    TorchTuneConfig,
    epochs=st.none() | st.integers(1, 9),
    peft_config=st.none() | st.sampled_from([LORA, QLORA, DORA]),
    resources_per_node=st.sampled_from([None, {"gpu": 1}, {"cpu": "500m", "memory": "1.5Gi"}]),
    overrides=st.lists(st.sampled_from(["device=cpu", "a.b=c"]), max_size=2),
)
builtin_configs = configs.map(
    # A TorchTune runtime requests two GPUs itself, for which there is no QLoRA recipe.
    lambda c: c.model_copy(update={"num_proc_per_node": 1}) if c.peft_config and c.peft_config.is_qlora else c
)
containers = st.builds(
    CustomTrainerContainer,
    image=st.none() | st.just("image"),
    command=st.none() | st.just(("run", "it")),
    args=st.none() | st.lists(st.text(max_size=9), max_size=3),
    num_nodes=st.none() | st.integers(1, 8),
    num_proc_per_node=st.none() | st.integers(1, 8),
    env=st.none()
    | st.dictionaries(
        st.sampled_from(["A", "B"]), st.text(max_size=9) | st.just(SecretKeyReference(name="s", key="k", optional=True))
    ),
)
cache = DataCacheInitializer(
    storage_uri="cache://schema/table", metadata_loc="s3://m/x", num_data_nodes=2, head_cpu="1"
)
steps = st.one_of(
    st.builds(InitializeDataset, storage_uri=uris, workspace=workspaces, secret=references, **common),
    st.builds(InitializeModel, storage_uri=uris, workspace=workspaces, secret=references, **common),
    st.builds(ExportModel, destination=uris, workspace=workspaces, secret=references, **common),
    st.builds(FineTune, model=st.just("llama3.2-1b"), config=configs, workspace=workspaces, **common),
    st.builds(
        FineTune,
        model=st.just("llama3.2-3b"),
        config=builtin_configs,
        dataset=uris | st.just(cache),
        model_initializer=st.none() | uris,
        **{name: strategy for name, strategy in common.items() if name != "queue"},
    ),
    st.builds(TrainJob, trainer=containers, workspace=st.none() | workspaces, **common),
)


@given(steps)
def test_upstreams_models_parse_the_manifest_without_loss(step):
    from kubeflow_trainer_api import models  # type: ignore[import-untyped]

    sent = manifest(step, labels={"a": "b"}, annotations={"c": "d"})
    parsed = models.TrainerV1alpha1TrainJob.from_dict(sent)
    assert parsed is not None
    assert parsed.to_dict() == sent
    json.dumps(sent)


@given(steps)
def test_the_hash_depends_on_the_request_only(step):
    again = type(step).model_validate(step.model_dump())
    assert spec_hash(step) == spec_hash(again)
    assert spec_hash(step) == spec_hash(step.model_copy(update={"name": "other"}))
    assert len(spec_hash(step)) == 16


def test_different_requests_have_different_hashes():
    hashes = {
        spec_hash(FineTune(model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "epochs": n}))
        for n in (1, 2, 3)
    }
    hashes.add(spec_hash(FineTune(model="llama3.2-3b", workspace="w", config={"framework": "torchtune", "epochs": 1})))
    assert len(hashes) == 4


def test_the_hash_is_the_same_in_every_release():
    """If this value changed, a retry would replace running jobs of the previous release."""
    assert (
        spec_hash(FineTune(model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "epochs": 1}))
        == "3794326e4402959d"
    )


# -- details -----------------------------------------------------------------------------------------------------------


def test_workspace_and_placement_go_into_one_patch():
    step = InitializeModel(storage_uri="hf://a/b", workspace="claim", placement=Placement(node_selector={"a": "b"}))
    [patch] = manifest(step)["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert job["name"] == "node"
    assert pod["nodeSelector"] == {"a": "b"}
    assert pod["volumes"] == [{"name": "workspace", "persistentVolumeClaim": {"claimName": "claim"}}]
    assert pod["containers"] == [{"name": "node", "volumeMounts": [{"name": "workspace", "mountPath": "/workspace"}]}]


def test_secrets_are_references():
    step = InitializeDataset(storage_uri="s3://a/b", workspace="w", secret="s3")
    env = {e["name"]: e for e in manifest(step)["spec"]["trainer"]["env"]}
    assert env["SECRET_ACCESS_KEY"] == {
        "name": "SECRET_ACCESS_KEY",
        "valueFrom": {"secretKeyRef": {"name": "s3", "key": "SECRET_ACCESS_KEY", "optional": True}},
    }
    inline = manifest(
        FineTune(
            model="llama3.2-1b", config={"framework": "torchtune"}, dataset={"storage_uri": "hf://a/b", "secret": "hf"}
        )
    )
    assert inline["spec"]["initializer"]["dataset"]["secretRef"] == {"name": "hf"}


def test_gpus_are_in_requests_and_limits():
    trainer = manifest(
        FineTune(
            model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "resources_per_node": {"gpu": 1}}
        )
    )["spec"]["trainer"]
    assert trainer["resourcesPerNode"] == {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}


def test_kubernetes_expands_nothing_in_values():
    env = manifest(TrainJob(trainer=CustomTrainerContainer(image="x", env={"A": "$(HOME) $HOME"})))["spec"]["trainer"][
        "env"
    ]
    assert env == [{"name": "A", "value": "$$(HOME) $HOME"}]


def test_a_queue_is_labels_of_the_trainjob():
    metadata = manifest(TrainJob(queue=Queue(name="q", priority_class="p")))["metadata"]
    assert metadata["labels"] == {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "p"}


def test_a_trainjob_can_be_managed_by_multikueue():
    assert "managedBy" not in manifest(TrainJob())["spec"]
    job = TrainJob(managed_by="kueue.x-k8s.io/multikueue", queue="q")
    assert manifest(job)["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"


@given(st.text(max_size=60), st.text("0123456789abcdef", min_size=16, max_size=16), st.integers(1, 99))
def test_names_fit(prefix, digest, attempt):
    name = job_name(prefix, digest, attempt)
    assert len(name) <= 33
    assert name[0].isalpha()
    assert all(char.isascii() and (char.islower() or char.isdigit() or char == "-") for char in name)
    assert name == job_name(prefix, digest, attempt)
    assert name != job_name(prefix, digest, attempt + 1)


@given(st.text(max_size=90))
def test_label_values_fit(text):
    import re

    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", labels.label_value(text))
    assert len(labels.label_value(text)) <= 63


# -- functions and packed programs -------------------------------------------------------------------------------------


def sample(greeting, times=1):
    import os

    for _ in range(times):
        print(greeting, "$HOME", "`id`", '"quoted"', os.environ.get("WHO", "nobody"))


def test_a_function_is_sent_unchanged(tmp_path):
    command = function_command(CustomTrainer(func=sample, func_args={"greeting": "hé $(X) 'you'", "times": 2}))
    program = tmp_path / "program.py"
    program.write_bytes(base64.b64decode(command[3]))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "hé $(X) 'you' $HOME `id` \"quoted\" nobody\n" * 2


def test_functions_that_cannot_be_sent_are_refused():
    outside = 3

    def closure():
        return outside

    for function, words in ((closure, "outside"), (lambda: 1, "def"), (len, "source")):
        with pytest.raises(InvalidSpec, match=words):
            function_command(CustomTrainer(func=function))
    with pytest.raises(InvalidSpec, match="JSON"):
        function_command(CustomTrainer(func=sample, func_args={"greeting": object()}))


def test_packages_are_installed_from_the_given_indexes():
    trainer = CustomTrainer(
        func=sample,
        func_args={"greeting": "hi"},
        packages_to_install=["six"],
        pip_index_urls=["https://a", "https://b"],
    )
    assert function_command(trainer)[4:] == ["--index-url", "https://a", "--extra-index-url", "https://b", "six"]


@given(st.dictionaries(st.sampled_from(["a.py", "b/c.py"]), st.text()))
def test_packing_is_the_same_every_time(files):
    assert create_zip(files) == create_zip(dict(files))
    with zipfile.ZipFile(io.BytesIO(create_zip(files))) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == files


def test_the_packed_export_runs_with_python_alone(tmp_path):
    trainer = manifest(ExportModel(workspace="w", destination="s3://b/x"))["spec"]["trainer"]
    assert max(map(len, trainer["command"])) <= 65_536  # Trainer 2.2's limit for an item
    command = [sys.executable, "-I", *trainer["command"][1:], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--destination" in done.stdout


def test_a_builtin_trainer_has_the_command_tune_run():
    job = TrainJob(
        trainer=BuiltinTrainer(config=TorchTuneConfig()), runtime="torchtune-llama3.2-1b", initializer=Initializer()
    )
    assert build_trainjob(job, name="n", namespace="ns")["spec"]["trainer"]["command"] == ["tune", "run"]

"""The matrix of requests that users can make; every cluster must accept their manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    DataCacheInitializer,
    Distillation,
    ExportModel,
    FineTune,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    InitializeDataset,
    InitializeModel,
    Initializer,
    LLaMAFactoryConfig,
    LoraConfig,
    MLflow,
    Placement,
    PreferenceTuning,
    Quantization,
    QuantizationAware,
    Queue,
    Runtime,
    S3DatasetInitializer,
    S3ModelInitializer,
    SecretKeyReference,
    SecretReference,
    TensorBoard,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TrainJob,
    TRLConfig,
    TRLLoraConfig,
    UnslothConfig,
    Volume,
    WandB,
    WorkspaceVolume,
)
from trainjob.manifest import to_trainjob
from trainjob.spec import FrameworkConfig

LARGE_RUNTIME = Runtime(name="any-llama3.3-70b", kind="TrainingRuntime")
"""A runtime that the Trainer does not ship; the tests create it."""
MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3.3-70b", "qwen2.5-1.5b")
METHODS: Mapping[str, LoraConfig | None] = {
    "full": None,
    "lora": LoraConfig(lora_rank=8, lora_alpha=16, lora_dropout=0.1, apply_lora_to_mlp=True),
    "qlora": LoraConfig(quantize_base=True),
    "dora": LoraConfig(use_dora=True, quantize_base=False),
    "quantized-dora": LoraConfig(use_dora=True, quantize_base=True),
}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "unsized": {},
    "1-gpu": {"resources_per_node": {"gpu": 1, "memory": "64Gi"}},
    "2-gpus": {"resources_per_node": {"gpu": 2, "cpu": "8"}},
    "1-process": {"num_proc_per_node": 1},
    "2-processes": {"num_proc_per_node": 2, "resources_per_node": {"gpu": 2}},
    "mig": {"resources_per_node": {"mig-1g.5gb": 1}},
    "2-nodes": {"num_nodes": 2, "resources_per_node": {"gpu": 8}},
}
SECRET_BY_NAME, SECRET_BY_KEYS = (
    SecretReference(name="credentials"),
    SecretReference(name="keys", keys={"ACCESS_TOKEN": "my-token", "ACCESS_KEY_ID": "id"}),
)
_S3 = {"endpoint": "http://store.example:9000", "region": "eu", "ignore_patterns": ("*.md", "*.txt")}
_CACHE = {"metadata_loc": "s3://bucket/metadata.json", "num_data_nodes": 2, "head_cpu": "1", "worker_mem": "4Gi"}
DATASETS: Mapping[str, Any] = {
    "no-dataset": None,
    "hf": "hf://organization/name",
    "hf-path": "hf://organization/name/data",
    "hf-secret": HuggingFaceDatasetInitializer(
        storage_uri="hf://o/n", secret=SECRET_BY_NAME, ignore_patterns=("*.md",)
    ),
    "hf-keys": HuggingFaceDatasetInitializer(storage_uri="hf://o/n", secret=SECRET_BY_KEYS),
    "s3": "s3://bucket/path",
    "s3-secret": S3DatasetInitializer(
        storage_uri="s3://bucket/path", secret=SECRET_BY_NAME, role_arn="arn:aws:iam", **_S3
    ),
    "s3-keys": S3DatasetInitializer(storage_uri="s3://bucket/path", secret=SECRET_BY_KEYS),
    "cache": DataCacheInitializer(storage_uri="cache://schema/table", **_CACHE),
}
MODEL_SOURCES: Mapping[str, Any] = {
    "no-model": None,
    "hf": "hf://organization/name",
    "hf-secret": HuggingFaceModelInitializer(storage_uri="hf://o/n", secret=SECRET_BY_NAME),
    "s3-keys": S3ModelInitializer(storage_uri="s3://bucket/path", secret=SECRET_BY_KEYS, **_S3),
}
_TOLERATION = {"key": "example.org/gpu", "operator": "Exists", "effect": "NoSchedule"}
_TERM = {"matchExpressions": [{"key": "example.org/zone", "operator": "In", "values": ["a", "b"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}}
PLACEMENTS: Mapping[str, Mapping[str, Any]] = {
    "selector": {"node_selector": {"example.org/pool": "gpus"}},
    "tolerations": {"tolerations": (_TOLERATION,)},
    "affinity": {"affinity": AFFINITY},
    "account": {"service_account_name": "trainer"},
    "pull-secrets": {"image_pull_secrets": ("registry", "other-registry")},
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    **{name: {"placement": Placement(**values)} for name, values in PLACEMENTS.items()},
    "placement": {"placement": Placement(**{key: value for one in PLACEMENTS.values() for key, value in one.items()})},
    "queue": {"queue": "team"},
    "priority": {"queue": Queue(name="team", priority_class="high")},
    "deadline": {"deadline": timedelta(hours=1, milliseconds=1)},
    "named": {"name": "a-name"},
}
"""Options that every step has."""
_CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "claim": {"persistentVolumeClaim": {"claimName": "data"}},
    "secret": {"secret": {"secretName": "s", "items": [{"key": "k", "path": "a/b", "mode": 0o400}], "optional": True}},
    "config-map": {"configMap": {"name": "c", "defaultMode": 0o440, "optional": True}},
    "empty-dir": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    "ephemeral": {"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": _CLAIM_SPEC}}},
    "csi": {"csi": {"driver": "csi.example.org", "readOnly": True, "volumeAttributes": {"bucket": "b"}}},
    "host-path": {"hostPath": {"path": "/srv/data", "type": "DirectoryOrCreate"}},
    "projected": {"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}},
    "nfs": {"nfs": {"server": "nfs.example.org", "path": "/export", "readOnly": True}},
    "image": {"image": {"reference": "registry.example/acme/tiny:v1", "pullPolicy": "IfNotPresent"}},
}
"""A volume of each kind."""
ALL_VOLUMES = tuple(
    Volume(name=name, source=source, mount_path=f"/mnt/{name}", read_only=name in ("secret", "csi"))
    for name, source in VOLUME_SOURCES.items()
)
_SECOND_MOUNT = {**ALL_VOLUMES[0].model_dump(), "mount_path": "/mnt/again", "sub_path": "a/b", "read_only": True}
VOLUME_SETS: Mapping[str, tuple[Any, ...]] = {
    **{volume.name: (volume,) for volume in ALL_VOLUMES},
    "all": ALL_VOLUMES,
    "below": (Volume(name="below", source={"emptyDir": {}}, mount_path="/workspace/output"),),
    "many": tuple(Volume(name=f"v{n}", source={"emptyDir": {}}, mount_path=f"/mnt/{n}") for n in range(127)),
    "twice": (*ALL_VOLUMES, _SECOND_MOUNT),
    "15-times": tuple(Volume(name="v", source={"emptyDir": {}}, mount_path=f"/mnt/{n}") for n in range(15)),
}
"""Sets of volumes of a step; the volumes of the last two sets are mounted several times."""
WORKSPACES: Mapping[str, Any] = {
    "claim": "claim",
    "folder-of-a-claim": WorkspaceVolume(claim="claim", sub_path="team/a"),
    "folder-of-the-node": WorkspaceVolume(node_path="/srv/tickets"),
    "folder-below-one-of-the-node": WorkspaceVolume(node_path="/srv", sub_path="tickets"),
}
_ENV = {"PLAIN": "$(NOTHING) and $HOME", "TOKEN": SecretKeyReference(name="s", key="k", optional=True)}


def _reward(completions: list[str], **_: Any) -> list[float]:
    """Return the length of each answer; this is the reward function of the online methods."""
    return [float(len(text)) for text in completions]


TRL_METHODS: Mapping[str, Mapping[str, Any]] = {
    **{method: {} for method in ("sft", "dpo", "kto", "reward")},
    **{method: {"reward_functions": (_reward, "package.module.score")} for method in ("grpo", "rloo")},
    "distillation": {"teacher_path": "teacher/$(model)"},
}
"""Fields that each method of TRL requires."""
Request = tuple[str, Callable[[], Any]]
"""A label, and a function that builds the request, or raises InvalidSpec if the request is invalid."""


def fine_tune_requests(**options: Any) -> Iterator[Request]:
    """Yield a fine-tuning of every model, method and size with these options."""
    for model, method, size in product(MODELS, METHODS, SIZES):
        config = {"epochs": 1, "peft_config": METHODS[method], **SIZES[size]}
        yield (
            f"{model} {method} {size}",
            _build_later(FineTune, model=model, config=config, **_with_large_runtime(model, options)),
        )


def _with_large_runtime(model: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**options, "runtime": LARGE_RUNTIME} if model == "llama3.3-70b" and "workspace" not in options else options


def _build_later(kind: Callable[..., Any], **values: Any) -> Callable[[], Any]:
    def make() -> Any:
        config = {"config": TorchTuneConfig(**values["config"])} if "config" in values else {}
        return kind(**{**values, **config})

    return make


def tuning_requests() -> Iterator[Request]:
    """Yield preference tuning, distillation and quantization.

    Each request is yielded twice: alone, and as a step of a run. Only a step of a run can resume an earlier attempt.
    """
    teacher = Distillation(teacher="llama3.1-8b", teacher_path="teacher/$(x)", ratio=0.5)
    tunings: dict[str, dict[str, Any]] = {
        "plain": {},
        "preferences": {"preference_tuning": PreferenceTuning(beta=0.1)},
        "teacher": {"distillation": teacher},
        "quantized": {"quantization_aware": QuantizationAware(group_size=32)},
    }
    for model, tuning, method in product(("llama3.2-1b", "qwen2.5-1.5b"), tunings, ("full", "lora")):
        if (tuning, method) in (("teacher", "full"), ("quantized", "lora")) or (
            tuning == "teacher" and model[0] == "q"
        ):
            continue  # TorchTune has no such recipe, or the models have no common vocabulary
        config = TorchTuneConfig(epochs=2, peft_config=METHODS[method], **tunings[tuning])
        yield from _workspace_tuning_requests(f"{model} {tuning} {method}", model, config)
    for model in MODELS:
        yield from _workspace_tuning_requests(
            f"{model} quantization", model, TorchTuneConfig(quantization=Quantization(group_size=64))
        )


def trl_requests() -> Iterator[Request]:
    """Yield a TRL training of every method and size, each with all kinds of arguments."""
    tuned = {
        "precision": "bf16",
        "columns": {"prompt": "a $(column)"},
        "eval_dataset_path": "held $(out)",
        "pip_index_url": "https://p.example/simple",
        "arguments": {"run_name": "$(x) it's", "fsdp_config": {"version": 2}, "report_to": ["wandb", "tensorboard"]},
    }
    for method, size, lora in product(
        TRL_METHODS, SIZES, (None, TRLLoraConfig(lora_rank=8, target_modules=("q_proj",)))
    ):
        config = TRLConfig(method=method, peft_config=lora, **TRL_METHODS[method], **SIZES[size], **tuned)
        label = f"{method} {size} {'lora' if lora else 'full'}"
        yield from _workspace_tuning_requests(label, "any/model", config)


def llamafactory_requests() -> Iterator[Request]:
    """Yield a LLaMA-Factory training of every method and size, with all arguments."""
    tuned = {
        "template": "llama3",
        "precision": "bf16",
        "columns": {"prompt": "a $(column)"},
        "eval_dataset_path": "held $(out)",
        "deepspeed": {"zero_optimization": {"stage": 3}},
        "arguments": {"run_name": "$(x) it's", "report_to": ["wandb", "tensorboard"]},
    }
    adapter = {"lora_rank": 8, "modules_to_save": ["q"]}
    for method, size, lora in product(("pt", "sft", "dpo", "kto"), SIZES, (None, adapter)):
        config = LLaMAFactoryConfig(method=method, peft_config=lora, **SIZES[size], **tuned)
        label = f"{method} {size} {'lora' if lora else 'full'}"
        yield from _workspace_tuning_requests(label, "any/model", config)


def unsloth_requests() -> Iterator[Request]:
    """Yield an Unsloth training of every method and size with GPUs, with all arguments."""
    tuned = {
        "precision": "bf16",
        "gradient_checkpointing": "unsloth",
        "columns": {"prompt": "a $(column)"},
        "eval_dataset_path": "held $(out)",
        "arguments": {"run_name": "$(x) it's", "report_to": ["wandb", "tensorboard"], "rope_scaling": {"factor": 2.0}},
    }
    lora = {"lora_rank": 8, "modules_to_save": ["q"], "load_in_4bit": True}
    for method, nodes, gpus, peft in product(("sft", "dpo", "kto"), (1, 2), (1, 4), (None, lora)):
        config = UnslothConfig(
            method=method, peft_config=peft, num_nodes=nodes, resources_per_node={"gpu": gpus}, **tuned
        )
        label = f"{method} {nodes}x{gpus} {'lora' if peft else 'full'}"
        yield from _workspace_tuning_requests(label, "any/model", config, image="registry.example/unsloth:1")


def _workspace_tuning_requests(
    label: str, model: str, config: FrameworkConfig, image: str | None = None
) -> Iterator[Request]:
    paths = {"model_path": "made/before", "output_path": "$(y)"}
    step = FineTune(model=model, workspace="claim", image=image, config=config, **paths)
    yield label, lambda: step
    yield f"{label} of a run", lambda: to_trainjob(step, run="0123456789abcdef-0123")


def initializer_requests() -> Iterator[Request]:
    """Yield a fine-tuning on a TorchTune runtime with every source and option."""
    dataset = TorchTuneInstructDataset(split="train[:10%]", column_map={"input": "q", "output": "it's"})
    config = {"seed": 3, "learning_rate": 2e-5, "overrides": ("compile=True",), "dataset_preprocess_config": dataset}
    base = {"model": "llama3.2-1b", "config": config, "env": _ENV}
    for data, source in product(DATASETS, MODEL_SOURCES):
        sources = {"dataset": DATASETS[data], "model_initializer": MODEL_SOURCES[source]}
        for option in OPTIONS if data in ("hf-secret", "s3-keys") else ("plain",):
            secret = {"secret": SECRET_BY_KEYS} if data == "hf" else {}
            yield f"{data} {source} {option}", _build_later(FineTune, **base, **sources, **secret, **OPTIONS[option])


def workspace_requests() -> Iterator[Request]:
    """Yield the steps of a chain - fetch, fine-tune, export - with every option."""
    workspace = {"workspace": "claim"}
    config = {"epochs": 1, "dataset_preprocess_config": TorchTuneInstructDataset(new_system_prompt="Be: brief, $(x)")}
    for option, secret in product(OPTIONS, (None, SECRET_BY_NAME, SECRET_BY_KEYS)):
        more = {**workspace, **OPTIONS[option], "secret": secret, "env": {"A": "1"}}
        label = f"{option} {secret.name if secret else 'no-secret'}"
        yield (
            f"fine-tune {label}",
            _build_later(FineTune, model="qwen2.5-1.5b", config=config, max_restarts=None, **more),
        )
        for kind, uri in product((InitializeDataset, InitializeModel), ("hf://organization/name", "s3://bucket/path")):
            store = _S3 if uri.startswith("s3") else {"revision": "v1.0"}
            values = {"storage_uri": uri, "resources": {"memory": "4Gi"}, **store}
            yield f"{kind.__name__} {uri} {label}", _build_later(kind, **values, **more)
        for destination in ("s3://bucket/path", "hf://organization/name", "/workspace/export", "file:///workspace/x"):
            values = {"destination": destination, "metadata": {"note": "$(A) \"quoted\" and 'single'"}}
            values["registry"] = {"server": "https://registry", "model": "my $(A) model", "secret": "registry"}
            yield f"export {destination} {label}", _build_later(ExportModel, **values, **more)
        yield from _requests_of_image_programs(label, {**more, "program": "image", "image": "registry.example/steps:1"})


def _requests_of_image_programs(label: str, fields: Mapping[str, Any]) -> Iterator[Request]:
    builders: Mapping[str, Callable[[], Any]] = {
        "fetch": partial(InitializeModel, storage_uri="hf://organization/name", **fields),
        "torchtune": partial(FineTune, model="qwen2.5-1.5b", config=TorchTuneConfig(), **fields),
        "trl": partial(FineTune, model="m", config=TRLConfig(method="sft"), **fields),
        "llamafactory": partial(FineTune, model="m", config=LLaMAFactoryConfig(method="sft"), **fields),
        "unsloth": partial(
            FineTune, model="m", config=UnslothConfig(method="sft", resources_per_node={"gpu": 1}), **fields
        ),
        "export": partial(ExportModel, destination="s3://bucket/path", **fields),
    }
    for name, build in builders.items():
        yield f"{name} program=image {label}", _convert_later(build)


def _convert_later(build: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: to_trainjob(build(), run="0123456789abcdef-0123")


def _train(rate: float = 0.1, words: tuple[str, ...] = ("a $(b)",)) -> None:
    """Print the arguments; this is the function of the CustomTrainer."""
    print(rate, *words)


def trainer_requests() -> Iterator[Request]:
    """Yield functions and containers with every option, workspace and initializer."""
    function = CustomTrainer(
        func=_train, func_args={"rate": 0.5}, packages_to_install=("six",), pip_index_urls=("https://p.example/simple",)
    )
    trainers: Mapping[str, Any] = {
        "runtime's-own": CustomTrainerContainer(),
        "container": CustomTrainerContainer(image="i:1", command=("sh", "-c", "true"), args=("x",), env=_ENV),
        "sized": CustomTrainerContainer(num_nodes=3, num_proc_per_node=4, resources_per_node={"cpu": "1.5", "gpu": 4}),
        "many": CustomTrainerContainer(command=("c",) * 128, args=("a",) * 128, env={f"V{n}": "" for n in range(128)}),
        "long": CustomTrainerContainer(command=("c" * 65_536,)),
        "function": function,
        "sized-function": CustomTrainer(func=_train, image="i:1", num_nodes=2, resources_per_node={"gpu": 1}, env=_ENV),
    }
    for trainer, option, workspace in product(trainers, OPTIONS, (None, "claim")):
        label = f"{trainer} {option} {workspace or 'no-workspace'}"
        labels = {"labels": {"example.org/team": "a"}, "annotations": {"example.org/note": "any text: here"}}
        yield label, _build_later(TrainJob, trainer=trainers[trainer], workspace=workspace, **OPTIONS[option], **labels)
    for data, source in product(DATASETS, MODEL_SOURCES):
        initializer = Initializer(dataset=DATASETS[data], model=MODEL_SOURCES[source])
        runtime = {"runtime": "torchtune-qwen2.5-1.5b", "initializer": initializer}
        yield f"initializers {data} {source}", _build_later(TrainJob, trainer=trainers["container"], **runtime)


TRACKERS: Mapping[str, Any] = {
    "mlflow": MLflow(tracking_uri="http://mlflow:5000", secret=SECRET_BY_NAME, parameters={"a": "$(b) $$"}),
    "mlflow-keys": MLflow(
        tracking_uri="http://mlflow:5000",
        experiment="e",
        secret=SecretReference(name="keys", keys={"MLFLOW_TRACKING_TOKEN": "token"}),
    ),
    "wandb": WandB(project="p", entity="e", base_url="https://wandb.example.org", secret=SECRET_BY_NAME),
    "wandb-offline": WandB(mode="offline"),
    "tensorboard": TensorBoard(log_path="logs/tensorboard"),
}
"""A tracker of each kind."""


def tracking_requests() -> Iterator[Request]:
    """Yield every kind of training with every tracker, alone and as a step of a run."""
    trainers: Mapping[str, Any] = {
        "function": CustomTrainer(func=_train, func_args={"rate": 0.5}, env=_ENV),
        "container": CustomTrainerContainer(image="i:1", command=("sh", "-c", "true"), args=("x",), num_nodes=2),
    }
    online = {"method": "grpo", **TRL_METHODS["grpo"]}
    tunings: Mapping[str, Mapping[str, Any]] = {
        "torchtune": {"model": "qwen2.5-1.5b", "config": TorchTuneConfig(epochs=2, peft_config=METHODS["lora"])},
        "trl": {"model": "any/model", "config": TRLConfig(**online)},
        "llamafactory": {"model": "any/model", "config": LLaMAFactoryConfig(method="sft")},
    }
    for name, tracking in TRACKERS.items():
        for trainer, given in trainers.items():
            yield (
                f"{trainer} {name}",
                _build_later(TrainJob, trainer=given, workspace="claim", tracking=tracking),
            )
        for program, (tuning, values) in product(("packed", "image"), tunings.items()):
            fields = {"workspace": "claim", "tracking": tracking, "program": program, "image": "i:1"}
            label, build = f"{tuning} {name} {program}", partial(FineTune, **values, **fields)
            yield label, build
            yield f"{label} of a run", _convert_later(build)


def volume_requests() -> Iterator[Request]:
    """Yield every step with every kind of workspace and with volumes of every kind."""
    kinds: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
        "dataset": (InitializeDataset, {"storage_uri": "hf://o/n"}),
        "model": (InitializeModel, {"storage_uri": "s3://bucket/path"}),
        "fine-tune": (FineTune, {"model": "llama3.2-1b", "config": {}}),
        "export": (ExportModel, {"destination": "s3://bucket/path"}),
        "container": (TrainJob, {"trainer": CustomTrainerContainer(image="i:1", command=("true",))}),
    }
    fetched = {"model": "llama3.2-1b", "config": {}, "dataset": "hf://o/n", "model_initializer": "hf://o/n"}
    for volumes, given in VOLUME_SETS.items():
        for step, workspace in product(kinds, WORKSPACES):
            kind, values = kinds[step]
            more = {"workspace": WORKSPACES[workspace], "volumes": given}
            yield f"{step} {workspace} {volumes}", _build_later(kind, **values, **more)
        yield f"fetching no-workspace {volumes}", _build_later(FineTune, **fetched, volumes=given)
        trainer = CustomTrainerContainer(command=("true",))
        yield f"container no-workspace {volumes}", _build_later(TrainJob, trainer=trainer, volumes=given)

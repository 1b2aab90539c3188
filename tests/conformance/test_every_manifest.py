"""The webhooks accept every manifest that the project builds. Requests that it rejects could not run."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    create_jobsets,
    find_container,
    find_pod_spec,
    gpu_resources,
)
from tests.conformance.request_matrix import (
    LARGE_RUNTIME,
    METHODS,
    MODELS,
    OPTIONS,
    SIZES,
    fine_tune_requests,
    initializer_requests,
    llamafactory_requests,
    tracking_requests,
    trainer_requests,
    trl_requests,
    tuning_requests,
    unsloth_requests,
    volume_requests,
    workspace_requests,
)
from tests.conformance.runtimes import create_runtime
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job
from trainjob import (
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    Initializer,
    InvalidSpec,
    Placement,
    PodSecurityContext,
    Runtime,
    SecurityContext,
    TrainJob,
    TRLConfig,
)
from trainjob.manifest import Dialect, build_trainjob
from trainjob.manifest import to_trainjob as general_request

ATTENTION = "model.lora_attn_modules=[q_proj]"
ARGUMENTS = {
    "full": [],
    "lora": [ATTENTION],
    "qlora": [ATTENTION, "model.quantize_base=True"],
    "dora": [ATTENTION, "model.use_dora=True"],
    "quantized-dora": [ATTENTION, "model.quantize_base=True", "model.use_dora=True"],
}


def dialect_of(target):
    return Dialect.V2_2 if target.trainer >= (2, 2) else Dialect(f"2.{target.trainer[1]}")


def build_manifest(request, namespace, target, name="job"):
    return build_trainjob(general_request(request), name=name, namespace=namespace, dialect=dialect_of(target))


def dry_run(client, namespace, item):
    """Return the API server's response to a dry run."""
    return client.request("POST", path_of("TrainJob", namespace), item, fieldValidation="Strict", dryRun="All")


def create_large_runtime(client, namespace):
    spec = client.get("ClusterTrainingRuntime", None, TORCHTUNE_RUNTIMES["llama3.2-3b"])["spec"]
    create_runtime(client, namespace, spec, LARGE_RUNTIME.name)


def find_refusals(client, namespace, target, requests):
    """Return the builder's errors, and the server's errors for the other requests."""
    builder_errors, server_errors = {}, {}
    for label, make in requests:
        try:
            item = build_manifest(make(), namespace, target)
        except InvalidSpec as error:
            builder_errors[label] = str(error)
            continue
        response = dry_run(client, namespace, item)
        if not response.ok:
            server_errors[label] = f"{response.code} {response.message}"
    return builder_errors, server_errors


def has_several_processes(size, *, fetched):
    """Return whether a size means several processes.

    A TorchTune runtime has two GPUs, and does not count MIG slices.
    """
    return size in {"2-gpus", "2-processes", "2-nodes"} or (fetched and size == "unsized")


def list_without_recipe(*, fetched):
    """Yield model, method and size for which TorchTune has no recipe."""
    for model in MODELS:
        for method in METHODS:
            for size in SIZES:
                nodes = size == "2-nodes" and (model != "llama3.3-70b" or method != "full")
                quantized = method == "qlora" and (
                    model == "qwen2.5-1.5b"
                    or (
                        model != "llama3.3-70b"
                        and (has_several_processes(size, fetched=fetched) or (fetched and size == "mig"))
                    )
                )
                single = model == "llama3.3-70b" and not (
                    has_several_processes(size, fetched=fetched) or (fetched and size == "mig")
                )
                if nodes or quantized or single:
                    yield model, method, size


def test_fine_tuning_with_initializers(client, namespace, target, record_feature):
    """A fine-tuning with initializers is accepted for every model, method and size that has a recipe."""
    create_large_runtime(client, namespace)
    builder_errors, server_errors = find_refusals(
        client, namespace, target, fine_tune_requests(dataset="hf://o/n", model_initializer="hf://o/n")
    )
    assert server_errors == {}
    assert sorted(builder_errors) == sorted(" ".join(one) for one in list_without_recipe(fetched=True))
    record_feature("TorchTune models")


def build_by_hand(model, method, size):
    """Return the TrainJob of a rejected request.

    It is complete, so that Trainer 2.1 validates it.
    """
    runtime = (
        {"runtime": LARGE_RUNTIME.name, "kind": LARGE_RUNTIME.kind}
        if model == "llama3.3-70b"
        else {"runtime": TORCHTUNE_RUNTIMES[model]}
    )
    sizes = {
        "unsized": {},
        "1-gpu": {"resourcesPerNode": gpu_resources(1)},
        "2-gpus": {"resourcesPerNode": gpu_resources(2)},
        "1-process": {"numProcPerNode": 1},
        "2-processes": {"numProcPerNode": 2, "resourcesPerNode": gpu_resources(2)},
        "mig": {"resourcesPerNode": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}},
        "2-nodes": {"numNodes": 2, "resourcesPerNode": gpu_resources(8)},
    }
    return {"command": ["tune", "run"], "args": ARGUMENTS[method], **sizes[size]}, runtime


def test_fine_tuning_without_a_recipe(client, namespace, target):
    """If no recipe exists for a request, the webhook rejects it too, or the Trainer would run another recipe."""
    create_large_runtime(client, namespace)
    accepted = set()
    for model, method, size in list_without_recipe(fetched=True):
        trainer, runtime = build_by_hand(model, method, size)
        if target.trainer < (2, 2):
            trainer = {"numNodes": 1, "numProcPerNode": "auto", **trainer}
        if dry_run(client, namespace, train_job(trainer=trainer, **runtime)).ok:
            accepted.add((model, method, size))
    single = {("llama3.3-70b", method, size) for method in METHODS for size in ("1-gpu", "1-process")}
    nodes = {("llama3.3-70b", method, "2-nodes") for method in METHODS if method != "full"}
    assert accepted == (single if target.trainer >= (2, 3) else single | nodes)


def test_fine_tuning_in_a_workspace(client, namespace, target):
    """A fine-tuning in a workspace is accepted for every model, method and size that has a recipe."""
    builder_errors, server_errors = find_refusals(client, namespace, target, fine_tune_requests(workspace="claim"))
    assert server_errors == {}
    assert sorted(builder_errors) == sorted(" ".join(one) for one in list_without_recipe(fetched=False))


@pytest.mark.since("2.0")
def test_trl_trainings(client, namespace, target, record_feature):
    """A TRL training is accepted for every method and size, with LoRA and without."""
    check_refusals(client, namespace, target, trl_requests, lambda words: False)
    record_feature("TRL")


@pytest.mark.since("2.0")
def test_llamafactory_trainings(client, namespace, target):
    """A LLaMA-Factory training is accepted for every method and size, with LoRA and without."""
    check_refusals(client, namespace, target, llamafactory_requests, lambda words: False)


def test_unsloth_trainings(client, namespace, target):
    """An Unsloth training is accepted for every method and number of GPUs, with LoRA and without."""
    check_refusals(client, namespace, target, unsloth_requests, lambda words: False)


def test_a_pods_time_to_end(client, namespace, target):
    """A pod's time to end is accepted from Trainer 2.3 on. Before, the API server refuses the field by its name."""
    placement = Placement(termination_grace_period_seconds=120)
    step = FineTune(model="m", workspace="claim", placement=placement, config=TRLConfig(method="sft"))
    builder_errors, server_errors = find_refusals(client, namespace, target, [("step", lambda: step)])
    assert builder_errors == {}
    if target.trainer >= (2, 3):
        assert server_errors == {}
    else:
        assert "terminationGracePeriodSeconds" in server_errors["step"]


def test_security_contexts(client, namespace, target):
    """Security contexts of a step's pods and containers are accepted from Trainer 2.2 on."""
    placement = Placement(
        security_context=PodSecurityContext(
            run_as_user=1000,
            run_as_group=1000,
            run_as_non_root=True,
            seccomp_profile={"type": "RuntimeDefault"},
            se_linux_options={"level": "s0:c1,c2"},
            fs_group=2000,
            fs_group_change_policy="OnRootMismatch",
            supplemental_groups=[3000],
        ),
        container_security_context=SecurityContext(
            run_as_user=0,
            app_armor_profile={"type": "RuntimeDefault"},
            allow_privilege_escalation=False,
            capabilities={"drop": ["ALL"]},
            privileged=False,
            read_only_root_filesystem=True,
        ),
    )
    requests = [
        ("step", lambda: FineTune(model="m", workspace="claim", placement=placement, config=TRLConfig(method="sft"))),
        ("job", lambda: TrainJob(placement=placement)),
    ]
    check_refusals(client, namespace, target, lambda: requests, lambda words: target.trainer < (2, 2))


def is_unsupported_deadline(option, target):
    """Return whether an option is a deadline on a Trainer before 2.2."""
    return option == "deadline" and target.trainer < (2, 2)


def check_refusals(client, namespace, target, requests, refused):
    """Check that the builder rejects the selected labels only, and the server none."""
    builder_errors, server_errors = find_refusals(client, namespace, target, requests())
    assert server_errors == {}
    expected = sorted(label for label, _ in requests() if refused(label.split()))
    assert sorted(builder_errors) == expected, builder_errors


def test_initializer_sources(client, namespace, target, record_feature):
    """Datasets and models from every source, with Secrets by name and by keys, are accepted with each option."""

    def refused(words):
        data, source, option = words
        nothing, queued = (data, source) == ("no-dataset", "no-model"), option in ("queue", "priority")
        # With a queue, a job on a stock runtime would never start.
        return nothing or queued or is_unsupported_deadline(option, target)

    check_refusals(client, namespace, target, initializer_requests, refused)
    record_feature("Hub initializer", "S3 initializer", "data cache")


def test_chain(client, namespace, target, record_feature):
    """Every step of a chain in a workspace is accepted, with each option and kind of Secret."""
    check_refusals(
        client, namespace, target, workspace_requests, lambda words: is_unsupported_deadline(words[-2], target)
    )
    record_feature("export", "model registry")


def test_functions_and_containers(client, namespace, target, record_feature):
    """Functions and containers are accepted with each option, with and without a workspace or initializers."""
    check_refusals(client, namespace, target, trainer_requests, lambda words: is_unsupported_deadline(words[1], target))
    record_feature("Python function", "container", "PyTorch DDP/FSDP")


def test_tracked_trainings(client, namespace, target):
    """Every kind of training with every experiment tracker is accepted."""
    check_refusals(client, namespace, target, tracking_requests, lambda words: False)


def test_volumes_and_workspaces(client, namespace, target):
    """Every step with every kind of workspace and volume is accepted, also with a volume mounted twice."""
    check_refusals(client, namespace, target, volume_requests, lambda words: False)


def all_options(target):
    """Return all options that this version has."""
    known = ("placement", "priority", "named", *(() if is_unsupported_deadline("deadline", target) else ("deadline",)))
    return {key: value for name in known for key, value in OPTIONS[name].items()}


def test_pods_have_the_requested_fields(client, namespace, target):
    """The pods have the requested volume, mount, node selector, tolerations, affinity, account and pull secrets."""
    sources = {"dataset": "hf://o/n", "model_initializer": "hf://o/n"}
    options = all_options(target)
    initializer = Initializer(dataset="hf://o/n", model="hf://o/n")
    spec = client.get("ClusterTrainingRuntime", None, TORCHTUNE_RUNTIMES["llama3.2-1b"])["spec"]
    create_runtime(client, namespace, spec, "mine-llama3.2-1b")
    own = Runtime(name="mine-llama3.2-1b", kind="TrainingRuntime")
    requests = {
        "container": TrainJob(trainer=CustomTrainerContainer(command=("true",)), workspace="claim", **options),
        "export": ExportModel(workspace="claim", destination="s3://b/p", secret="s", **options),
        "split": FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="claim", **options),
        "fetching": FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, runtime=own, **sources, **options),
        "initializers": TrainJob(trainer=CustomTrainerContainer(), runtime=own, initializer=initializer, **options),
    }
    jobs = {name: build_manifest(request, namespace, target, name) for name, request in requests.items()}
    for name, jobset in create_jobsets(client, namespace, jobs).items():
        has_workspace = name in ("container", "export", "split")
        for step in ["node"] if has_workspace else ["dataset-initializer", "model-initializer", "node"]:
            check_pod(jobset, step, workspace=has_workspace)


def check_pod(jobset, step, *, workspace):
    pod = find_pod_spec(jobset, step)
    requested = OPTIONS["placement"]["placement"]
    assert pod["nodeSelector"] == dict(requested.node_selector)
    assert pod["tolerations"] == [dict(one) for one in requested.tolerations]
    assert pod["affinity"] == requested.affinity
    assert pod["serviceAccountName"] == "trainer"
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "other-registry"}]
    if workspace:
        assert {"name": "workspace", "persistentVolumeClaim": {"claimName": "claim"}} in pod["volumes"]
        assert {"name": "workspace", "mountPath": "/workspace"} in find_container(jobset, step)["volumeMounts"]


def test_every_tuning_method(client, namespace, target, record_feature):
    """Each tuning method of each model is accepted, also with the program that resumes an earlier attempt."""
    assert find_refusals(client, namespace, target, tuning_requests()) == ({}, {})
    record_feature("TorchTune recipes", "resume")

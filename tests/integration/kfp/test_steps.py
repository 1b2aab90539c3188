"""Tests of the conversion of a component's arguments and its task's settings to a step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kfp import dsl

from trainjob.errors import InvalidSpec
from trainjob.lifecycle import Limits
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.spec import CustomTrainer, ResourceRequirements, SecretKeyReference, TrainJobManifest
from trainjob_kfp import source, steps

STORE = {"storage_uri": "hf://demo/tickets", "workspace": "tickets"}
# Those of the task below, as a step has them.
RESOURCES = {
    "requests": {"nvidia.com/gpu": "2", "cpu": "1", "memory": "16Gi"},
    "limits": {"nvidia.com/gpu": "2", "cpu": "4", "memory": "16Gi"},
}
FINE_TUNE = {"model": "llama3.2-1b", "workspace": "tickets", "framework": "torchtune"}
TASK = dsl.TaskConfig(
    resources={"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1", "memory": "16Gi"}},
    env=[
        {"name": "MODE", "value": "fast"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ],
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
    node_selector={"pool": "gpu"},
    affinity={"nodeAffinity": {}},
)

# Volumes and mounts as KFP 2.17's driver passes them: backend/src/v2/driver/k8s.go (mount_pvc, use_secret_as_volume,
# use_config_map_as_volume) and driver.go (the pipeline's workspace); a volume has the name of its claim or Secret.
PIPELINE_WORKSPACE = (
    {"name": "kfp-workspace", "persistentVolumeClaim": {"claimName": "tickets-llm-x7k2p-kfp-workspace"}},
    {"name": "kfp-workspace", "mountPath": "/kfp-workspace"},
)
CLAIM = (
    {"name": "team.data", "persistentVolumeClaim": {"claimName": "team.data"}},
    {"name": "team.data", "mountPath": "/mnt/data", "subPath": "vision"},
)
SECRET = (
    {"name": "license", "secret": {"secretName": "license", "optional": False}},
    {"name": "license", "mountPath": "/etc/license"},
)
CONFIG = (
    {"name": "license", "configMap": {"name": "license", "optional": True}},
    {"name": "license", "mountPath": "/etc/settings"},
)


CHAIN = {
    "initialize_dataset": {"storage_uri": "hf://acme/tickets"},
    "initialize_model": {"storage_uri": "hf://acme/llama"},
    "fine_tune": {"model": "llama3.2-1b", "framework": "torchtune"},
    "export_model": {"destination": "s3://models/tickets"},
    "evaluate_model": {"tasks": ["tickets"]},
    "generate": {"input_path": "dataset/eval"},
    "promote_model": {"model": "s3://acme/models/7", "service": "tickets"},
}


MLFLOW = {"backend": "mlflow", "tracking_uri": "https://mlflow.example.org", "secret": "mlflow"}


def test_a_fine_tuning_has_its_tracker():
    tracked = to_trainjob(steps.fine_tune({**FINE_TUNE, "tracking": MLFLOW}, None)).tracking
    assert (tracked.tracking_uri, tracked.secret.name) == ("https://mlflow.example.org", "mlflow")
    assert tracked.parameters["model"] == "llama3.2-1b"


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ({"workspace": "tickets"}, ["/workspace/candidate", "/workspace/base"]),
        ({"workspace": "tickets", "any_run": True}, None),
        ({}, None),
    ],
    ids=["workspace", "any run", "no workspace"],
)
def test_an_evaluation_checks_the_folders_that_it_names(given, folders):
    arguments = {
        "function": "def score(models):\n    return {}\n",
        "function_args": {"models": ["/workspace/candidate", {"base": "/workspace/base"}, "hf://acme/llama"]},
        "env": {"MODEL": "/workspace/candidate", "HOME": "/root"},
        "after_jobs": ["export-11111111"],
    }
    step = steps.evaluate({**arguments, **given}, None)
    checked = step.model_check
    assert (checked and (list(checked.folders), checked.after_jobs)) == (folders and (folders, ("export-11111111",)))
    assert build_trainjob(to_trainjob(step), name="a", namespace="b")


def test_a_training_has_its_tracker_and_the_code_of_its_image():
    arguments = {"image": "i", "command": ["train"], "tracking": MLFLOW, "program": "image"}
    job = steps.train(arguments, None)
    command = build_trainjob(to_trainjob(job), name="a", namespace="b")["spec"]["trainer"]["command"]
    assert command[:3] == ["python", "-m", "trainjob.frameworks.supervision"]
    assert command[-1] == "train"


def test_a_manifest_has_no_tracker():
    with pytest.raises(InvalidSpec, match="tracking"):
        steps.train({"manifest": {"kind": "TrainJob"}, "tracking": MLFLOW}, None)


def task_config_with(*pairs):
    volumes, mounts = zip(*pairs, strict=True)
    return dsl.TaskConfig(volumes=list(volumes), volume_mounts=list(mounts))


@pytest.fixture
def pod_environment(monkeypatch):
    monkeypatch.setenv("KFP_POD_NAME", "tickets-llm-x7k2p-system-container-impl-1")


def weigh(rows=(), scale=1.0):
    return scale * sum(rows)


MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def test_empty_and_zero_arguments_count_as_not_given():
    empty = {
        "epochs": 0,
        "learning_rate": 0.0,
        "method": "",
        "config": {},
        "secret": {"name": ""},  # of an empty text
        "queue": {},
        "env": {},
    }
    assert steps.fine_tune({**FINE_TUNE, **empty, "deadline": ""}, None) == steps.fine_tune(FINE_TUNE, None)


def test_arguments_are_fields_of_the_step():
    given = {"epochs": 3, "learning_rate": 3e-3, "lora_rank": 16, "queue": "gpu-team", "deadline": "1m"}
    config = {"dtype": "fp32", "overrides": ["device=cpu"]}
    step = steps.fine_tune({**FINE_TUNE, **given, "config": config}, None)
    assert (step.config.epochs, step.config.learning_rate, step.config.overrides) == (3, 3e-3, ("device=cpu",))
    assert step.config.peft_config.lora_rank == 16
    assert step.config.dtype.value == "fp32"
    assert (step.queue.name, step.deadline) == ("gpu-team", timedelta(minutes=1))


def test_a_queue_may_have_a_priority():
    queue = {"name": "gpu-team", "priority_class": "urgent"}
    step = steps.train({"queue": queue, "managed_by": MULTIKUEUE}, None)
    assert (step.queue.name, step.queue.priority_class, step.managed_by) == ("gpu-team", "urgent", MULTIKUEUE)
    with pytest.raises(InvalidSpec, match=r"queue\.name is required"):
        steps.train({"queue": {"priority_class": "urgent"}}, None)


def test_settings_of_the_task_apply_to_the_training_pods():
    step = steps.fine_tune(FINE_TUNE, TASK)
    assert step.config.resources_per_node == ResourceRequirements(**RESOURCES)
    assert step.env == {"MODE": "fast", "HF_TOKEN": SecretKeyReference(name="hf", key="token", optional=True)}
    assert list(step.placement.tolerations) == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert step.placement.node_selector == {"pool": "gpu"}
    assert step.placement.affinity == {"nodeAffinity": {}}


def test_settings_of_the_task_apply_in_every_component():
    built = [
        steps.initialize_dataset(STORE, TASK),
        steps.initialize_model(STORE, TASK),
        steps.export_model({"workspace": "tickets", "destination": "/workspace/export"}, TASK),
    ]
    for step in built:
        assert step.resources == ResourceRequirements(**RESOURCES)
        assert step.env["MODE"] == "fast"
        assert step.placement.node_selector == {"pool": "gpu"}
    job = steps.train({"command": ["python", "train.py"], "resources_per_node": {"cpu": "8"}}, TASK)
    amounts = {"nvidia.com/gpu": "2", "cpu": "8", "memory": "16Gi"}
    assert job.trainer.resources_per_node == ResourceRequirements(requests=amounts, limits=amounts)
    assert job.trainer.env["MODE"] == "fast"
    assert job.placement.node_selector == {"pool": "gpu"}


def test_placement_and_volumes_are_added_to_those_of_the_task():
    placement = {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "node_selector": {"pool": "spot"},
        "service_account_name": "trainer",
        "image_pull_secrets": ["registry"],
    }
    memory = {"name": "shm", "source": {"emptyDir": {"medium": "Memory"}}, "mount_path": "/dev/shm"}
    task = task_config_with(CLAIM)
    task.tolerations, task.node_selector, task.affinity = TASK.tolerations, TASK.node_selector, TASK.affinity
    step = steps.fine_tune({**FINE_TUNE, "placement": placement, "volumes": [memory]}, task)
    assert [one["key"] for one in step.placement.tolerations] == ["nvidia.com/gpu", "spot"]
    assert (step.placement.node_selector, step.placement.affinity) == ({"pool": "spot"}, {"nodeAffinity": {}})
    assert (step.placement.service_account_name, step.placement.image_pull_secrets) == ("trainer", ["registry"])
    assert [volume.mount_path for volume in step.volumes] == ["/mnt/data", "/dev/shm"]


SETTINGS = {
    "name": "tuning",
    "labels": {"example.org/team": "nlp"},
    "annotations": {"example.org/run": "monday"},
    "queue_timeout": "8h",
    "start_timeout": "10m",
    "interruption_retries": 0,
    "on_failure": "keep",
    "ttl_after_success": "7d",
    "ttl_after_failure": "P14D",
}


@pytest.mark.parametrize("name", [*CHAIN, "train", "evaluate"])
def test_every_component_has_the_settings_of_every_step(name):
    own = {"train": {"image": "busybox"}, "evaluate": {"function": source(weigh)}}
    arguments = own.get(name) or {**CHAIN[name], "workspace": "tickets"}
    step = getattr(steps, name)({**arguments, **SETTINGS}, None)
    assert (step.name, step.labels, step.annotations) == tuple(
        SETTINGS[each] for each in ("name", "labels", "annotations")
    )
    limits = Limits.of(step)
    assert (limits.queued, limits.starting) == (timedelta(hours=8), timedelta(minutes=10))
    assert (step.interruption_retries, limits.on_failure.value) == (0, "keep")
    assert (step.ttl_after_success, step.ttl_after_failure) == (timedelta(days=7), timedelta(days=14))


@pytest.mark.parametrize(("given", "expected"), [([], None), ([2.0], 2), ([2, 8], (2, 8)), (2, 2)])
def test_nodes_are_a_number_or_a_range(given, expected):
    shrink = {"shrink_after": "5m"} if isinstance(expected, tuple) else {}
    assert steps.train({"image": "busybox", "num_nodes": given, **shrink}, None).trainer.num_nodes == expected
    assert steps.train({"function": source(weigh), "num_nodes": given, **shrink}, None).trainer.num_nodes == expected


def test_a_function_may_resume():
    given = {"function": source(weigh), "resume": True, "resume_from": {"step": 400}}
    trainer = steps.train(given, None).trainer
    assert (trainer.resume, trainer.resume_from.step) == (True, 400)
    with pytest.raises(InvalidSpec, match="resume cannot be given: it is only allowed with a `function`"):
        steps.train({"image": "busybox", "resume": True}, None)
    assert steps.train({"image": "busybox", "resume": False}, None).trainer.image == "busybox"


@pytest.mark.parametrize(
    "name", ["initialize_dataset", "initialize_model", "export_model", "evaluate_model", "generate", "promote_model"]
)
def test_resources_of_a_step_override_those_of_the_task(name):
    arguments = {**CHAIN[name], "workspace": "tickets", "resources": {"memory": "4Gi"}}
    assert getattr(steps, name)(arguments, None).resources == {"memory": "4Gi"}
    expected = {kind: {**amounts, "memory": "4Gi"} for kind, amounts in RESOURCES.items()}
    assert getattr(steps, name)(arguments, TASK).resources == ResourceRequirements(**expected)


def test_only_different_requests_and_limits_are_requirements():
    task = dsl.TaskConfig(resources={"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "4"}})
    assert steps.initialize_dataset(STORE, task).resources == {"nvidia.com/gpu": "2", "cpu": "4"}
    given = {**STORE, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
    assert steps.initialize_dataset(given, task).resources == ResourceRequirements(
        requests={"nvidia.com/gpu": "2", "cpu": "1"}, limits={"nvidia.com/gpu": "2", "cpu": "2"}
    )


def test_an_argument_overrides_the_tasks_environment():
    assert steps.fine_tune({**FINE_TUNE, "env": {"MODE": "slow"}}, TASK).env["MODE"] == "slow"


PROXY = dsl.TaskConfig(
    env=[
        {"name": "https_proxy", "value": "http://proxy:3128"},
        {"name": "NO_PROXY", "value": "localhost"},
        {"name": "MODE", "value": "fast"},
    ]
)


def test_a_proxy_on_the_task_is_left_out_with_a_notice(capsys):
    assert steps.fine_tune(FINE_TUNE, PROXY).env == {"MODE": "fast"}
    assert capsys.readouterr().out == (
        "The TrainJob's pods do not get the task's NO_PROXY, https_proxy. "
        "To set them there, use the component's `env`.\n"
    )
    only_proxy = dsl.TaskConfig(env=PROXY.env[:2])
    assert "env" not in steps.train({"manifest": MANIFEST}, only_proxy).manifest["spec"]["trainer"]


def test_a_proxy_in_the_components_environment_is_passed_on(capsys):
    given = {"https_proxy": "http://own:3128"}
    assert steps.fine_tune({**FINE_TUNE, "env": given}, PROXY).env == {"MODE": "fast", **given}
    assert "do not get the task's NO_PROXY." in capsys.readouterr().out


def test_a_secret_in_the_environment_stays_a_reference():
    reference = {"name": "wandb", "key": "key"}
    assert steps.fine_tune({**FINE_TUNE, "env": {"WANDB_API_KEY": reference}}, None).env == {
        "WANDB_API_KEY": SecretKeyReference(**reference)
    }


@pytest.mark.parametrize(
    ("arguments", "task", "field"),
    [
        ({"epochs": -1}, None, "epochs"),
        ({"config": {"no_such": 1}}, None, "no_such"),
        ({"model": "gpt-17"}, None, "model"),
        ({"deadline": "-5s"}, None, "deadline"),
        ({}, dsl.TaskConfig(env=[{"name": "HF_TOKEN", "value": "hf_abcdef"}]), "HF_TOKEN"),
    ],
)
def test_an_invalid_argument_is_refused_with_its_field(arguments, task, field):
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune({**FINE_TUNE, **arguments}, task)
    assert field in str(refused.value)
    assert "hf_abcdef" not in str(refused.value)


def test_a_variable_of_the_task_from_a_config_map_is_passed_on():
    reference = {"configMapKeyRef": {"name": "settings", "key": "region"}}
    task = dsl.TaskConfig(env=[{"name": "REGION", "valueFrom": reference}])
    assert steps.fine_tune(FINE_TUNE, task).env == {"REGION": reference}


def volumes_and_mounts(step):
    """Return the volumes and mounts in the TrainJob that is sent."""
    manifest = build_trainjob(to_trainjob(step), name="step", namespace="ml")
    pod = {}
    for patch in manifest["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
        spec = patch["template"]["spec"]["template"]["spec"]
        pod.setdefault("volumes", []).extend(spec.get("volumes", []))
        pod.setdefault("mounts", []).extend(m for c in spec.get("containers", []) for m in c.get("volumeMounts", []))
    return pod


def test_volumes_of_the_task_are_mounted_in_the_training_pods():
    step = steps.train({"image": "busybox"}, task_config_with(CLAIM, SECRET, CONFIG))
    found = {volume.mount_path: (volume.source, volume.sub_path) for volume in step.volumes}
    assert found == {
        "/mnt/data": ({"persistentVolumeClaim": {"claimName": "team.data"}}, "vision"),
        "/etc/license": ({"secret": {"secretName": "license", "optional": False}}, ""),
        "/etc/settings": ({"configMap": {"name": "license", "optional": True}}, ""),
    }
    assert len({volume.name for volume in step.volumes}) == 3
    assert {mount["mountPath"] for mount in volumes_and_mounts(step)["mounts"]} == set(found)


def test_a_claim_that_is_mounted_twice_is_one_volume():
    other = {"name": "team.data", "mountPath": "/mnt/other", "subPath": "audio"}
    step = steps.fine_tune(FINE_TUNE, task_config_with(CLAIM, (CLAIM[0], other)))
    assert [volume.sub_path for volume in step.volumes] == ["vision", "audio"]
    assert len({volume.name for volume in step.volumes}) == 1


@pytest.mark.parametrize(
    ("path", "claim", "folder"),
    [
        ("/kfp-workspace", "tickets-llm-x7k2p-kfp-workspace", ""),
        ("/kfp-workspace/", "tickets-llm-x7k2p-kfp-workspace", ""),
        ("/kfp-workspace/tune/1", "tickets-llm-x7k2p-kfp-workspace", "tune/1"),
        ("/mnt/data", "team.data", "vision"),
        ("/mnt/data/../data/tune", "team.data", "vision/tune"),
    ],
)
def test_a_workspace_path_means_the_claim_that_is_mounted_there(pod_environment, path, claim, folder):
    step = steps.fine_tune({**FINE_TUNE, "workspace": path}, task_config_with(PIPELINE_WORKSPACE, CLAIM, SECRET))
    assert (step.workspace.claim, step.workspace.sub_path) == (claim, folder)
    workspace_mount = "/mnt/data" if claim == "team.data" else "/kfp-workspace"
    assert {volume.mount_path for volume in step.volumes} == {"/kfp-workspace", "/mnt/data", "/etc/license"} - {
        workspace_mount
    }


def test_a_workspace_path_means_the_innermost_mount(pod_environment):
    inner = (CLAIM[0], {"name": "team.data", "mountPath": "/kfp-workspace/data"})
    task = task_config_with(PIPELINE_WORKSPACE, inner)
    step = steps.initialize_dataset({"storage_uri": "hf://a/b", "workspace": "/kfp-workspace/data/x"}, task)
    assert (step.workspace.claim, step.workspace.sub_path) == ("team.data", "x")
    assert [volume.mount_path for volume in step.volumes] == ["/kfp-workspace"]


def test_a_command_finds_the_workspace_at_both_paths(pod_environment):
    step = steps.train({"image": "busybox", "workspace": "/kfp-workspace/tune"}, task_config_with(PIPELINE_WORKSPACE))
    assert step.workspace.sub_path == "tune"
    mounts = {mount["mountPath"]: mount.get("subPath", "") for mount in volumes_and_mounts(step)["mounts"]}
    assert mounts == {"/workspace": "tune", "/kfp-workspace": ""}


@pytest.mark.parametrize(
    ("path", "task", "message"),
    [
        ("/kfp-workspace", None, "at nothing"),
        ("/kfp-workspaces", task_config_with(PIPELINE_WORKSPACE), "at /kfp-workspace"),
        ("/elsewhere", task_config_with(CLAIM, SECRET), "at /etc/license, /mnt/data"),
        (
            "/etc/license",
            task_config_with(SECRET),
            "is mounted there, but only a PersistentVolumeClaim can be a workspace",
        ),
    ],
)
def test_in_a_pod_a_path_without_a_claim_is_refused(pod_environment, path, task, message):
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune({**FINE_TUNE, "workspace": path}, task)
    assert "workspace" in str(refused.value)
    assert message in str(refused.value)


def test_outside_of_a_pod_a_path_is_a_folder_of_this_machine(tmp_path):
    folder = tmp_path / "made" / "when missing"
    step = steps.fine_tune({**FINE_TUNE, "workspace": str(folder)}, None)
    assert (step.workspace.node_path, step.workspace.claim) == (str(folder), "")
    assert folder.is_dir()


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSpec, match="workspace"):
        steps.fine_tune({**FINE_TUNE, "workspace": str(tmp_path / "file")}, None)


@pytest.mark.parametrize(
    ("path", "folder"), [("low", "low"), ("/workspace/output/low", "low"), ("/workspace/output", ""), ("", "")]
)
def test_an_export_accepts_the_output_path_of_a_fine_tuning(path, folder):
    given = {"workspace": "tickets", "destination": "/workspace/export", "output_path": path}
    assert steps.export_model(given, None).output_path == folder
    assert steps.fine_tune({**FINE_TUNE, "output_path": path}, None).output_path == folder


def test_a_runtime_of_the_namespace_can_be_selected():
    job = steps.train({"runtime": {"name": "ours", "kind": "TrainingRuntime"}}, None)
    assert (job.runtime.name, job.runtime.kind) == ("ours", "TrainingRuntime")
    with pytest.raises(InvalidSpec, match="runtime"):
        steps.fine_tune({**FINE_TUNE, "runtime": {"kind": "TrainingRuntime"}}, None)


def test_a_function_is_sent_as_text():
    given = {"function": source(weigh), "function_args": {"rows": [1, 2]}, "packages_to_install": ["numpy"]}
    job = steps.train({**given, "num_nodes": 2, "image": "pytorch/pytorch", "resources_per_node": {"cpu": 1}}, TASK)
    assert isinstance(job.trainer, CustomTrainer)
    assert (job.trainer.num_nodes, job.trainer.packages_to_install) == (2, ("numpy",))
    assert job.trainer.resources_per_node.limits["memory"] == "16Gi"
    assert job.trainer.env["MODE"] == "fast"
    assert "command" in build_trainjob(job, name="step", namespace="ml")["spec"]["trainer"]


def typed(a: int, b: float, c: bool, d: list, e: dict, f: str, g):
    return [a, b, c, d, e, f, g]


def test_text_arguments_of_a_function_are_converted_to_their_annotated_types():
    texts = {"a": "100.0", "b": "3", "c": "true", "d": "[1]", "e": '{"x": 1}', "f": "100", "g": "100"}
    job = steps.train({"function": source(typed), "function_args": texts}, None)
    assert job.trainer.func_args == {"a": 100, "b": 3.0, "c": True, "d": [1], "e": {"x": 1}, "f": "100", "g": "100"}
    assert [type(value) for value in job.trainer.func_args.values()] == [int, float, bool, list, dict, str, str]
    unchanged = {"a": 1, "b": 2.5, "c": False, "d": [], "e": {}, "f": "", "g": None}
    assert steps.train({"function": source(typed), "function_args": unchanged}, None).trainer.func_args == unchanged


def test_whole_numbers_in_lists_and_dicts_are_integers_again():
    local = {"a": 2.0, "b": 1.0, "c": True, "d": [1.0, 1.5], "e": {"x": [3.0]}, "f": "2.0", "g": 4.0}
    given = steps.train({"function": source(typed), "function_args": local}, None).trainer.func_args
    assert given == {"a": 2, "b": 1.0, "c": True, "d": [1, 1.5], "e": {"x": [3]}, "f": "2.0", "g": 4}
    assert [type(given[name]) for name in "abg"] == [int, float, int]
    manifest = {**MANIFEST, "spec": {**MANIFEST["spec"], "trainer": {"numNodes": 2.0}}}
    assert str(steps.train({"manifest": manifest}, None).manifest["spec"]["trainer"]["numNodes"]) == "2"
    assert steps.train({"resources_per_node": {"gpu": 1.0}}, None).trainer.resources_per_node == {"gpu": "1"}


@pytest.mark.parametrize("value", ["1.5", "many", "true", ""])
def test_a_text_that_does_not_match_the_annotation_is_refused(value):
    with pytest.raises(InvalidSpec, match=r"function_args\.a.*requires int"):
        steps.train({"function": "def f(a: int): pass", "function_args": {"a": value}}, None)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"function": "def f(): pass", "command": ["true"]}, "command"),
        ({"function": "def f(): pass", "args": ["x"]}, "args"),
        ({"command": ["true"], "packages_to_install": ["numpy"]}, "packages_to_install"),
        ({"function_args": {"a": 1}}, "func_args"),
        ({"function": "import os"}, "trainer.func"),
    ],
)
def test_a_function_and_a_command_exclude_each_other(arguments, field):
    with pytest.raises(InvalidSpec) as refused:
        steps.train(arguments, None)
    assert field in str(refused.value)


def test_an_evaluation_needs_a_function():
    with pytest.raises(InvalidSpec, match="function"):
        steps.evaluate({"function": ""}, None)


MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "ours"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox"}},
}


def test_only_plain_environment_variables_are_added_to_a_manifest():
    task = dsl.TaskConfig(env=[{"name": "MODE", "value": "fast"}])
    job = steps.train({"manifest": MANIFEST, "program": "packed", "interruption_retries": 5, "max_restarts": 2}, task)
    assert isinstance(job, TrainJobManifest)
    assert (job.max_restarts, job.interruption_retries) == (2, 5)
    assert job.manifest["spec"]["trainer"]["env"] == [{"name": "MODE", "value": "fast"}]


def test_arguments_that_belong_into_a_manifest_are_refused_with_it():
    with pytest.raises(InvalidSpec) as refused:
        steps.train({"manifest": MANIFEST, "image": "busybox", "num_nodes": 2}, TASK)
    for field in ("image", "num_nodes", "resources", "placement", "secrets"):
        assert field in str(refused.value)


@pytest.mark.parametrize("name", CHAIN)
def test_a_step_can_run_the_program_of_its_image(name):
    build, arguments = getattr(steps, name), {**CHAIN[name], "workspace": "tickets"}
    assert build(arguments, None).program == build({**arguments, "program": "packed"}, None).program == "packed"
    step = build({**arguments, "program": "image", "image": "registry.example/steps:1"}, None)
    assert to_trainjob(step, run="run-1").trainer.command[:2] == ("python", "-m")
    with pytest.raises(InvalidSpec, match="image is required: program='image' runs the code of the image"):
        build({**arguments, "program": "image", "image": ""}, None)

"""Tests of the warnings about settings on a task that its TrainJob does not get."""

# kfp reads the annotations of a pipeline immediately, so this file has no `from __future__ import annotations`.

import warnings

import pytest
from kfp import dsl, kubernetes

import trainjob_kfp
from tests.integration.kfp import golden
from trainjob_kfp import steps

LAUNCHER_ONLY = {
    "empty_dir_mount": (lambda task: kubernetes.empty_dir_mount(task, "shm", "/dev/shm"), "volumes="),
    "add_ephemeral_volume": (
        lambda task: kubernetes.add_ephemeral_volume(task, "v", "/x", ["ReadWriteOnce"], "1Gi"),
        "volumes",
    ),
    "set_image_pull_secrets": (
        lambda task: kubernetes.set_image_pull_secrets(task, ["registry"]),
        'placement={"image_pull_secrets"',
    ),
    "set_image_pull_policy": (lambda task: kubernetes.set_image_pull_policy(task, "Always"), "runtime"),
    "set_timeout": (lambda task: kubernetes.set_timeout(task, 60), "deadline"),
    "set_security_context": (
        lambda task: kubernetes.set_security_context(task, run_as_user=1000),
        'placement={"security_context"',
    ),
    "add_pod_label": (lambda task: kubernetes.add_pod_label(task, "a", "b"), "labels"),
    "add_pod_annotation": (lambda task: kubernetes.add_pod_annotation(task, "a", "b"), "annotations"),
    "use_field_path_as_env": (
        lambda task: kubernetes.use_field_path_as_env(task, "POD_NAME", "metadata.name"),
        'env={"POD_NAME": {"fieldRef"',
    ),
}
PASSED_ON = {
    "mount_pvc": lambda task: kubernetes.mount_pvc(task, "claim", "/data"),
    "use_secret_as_env": lambda task: kubernetes.use_secret_as_env(task, "hf", {"token": "HF_TOKEN"}),
    "use_secret_as_volume": lambda task: kubernetes.use_secret_as_volume(task, "hf", "/etc/hf"),
    "use_config_map_as_volume": lambda task: kubernetes.use_config_map_as_volume(task, "settings", "/etc/settings"),
    "add_toleration": lambda task: kubernetes.add_toleration(task, key="gpu"),
    "add_node_selector": lambda task: kubernetes.add_node_selector(task, "pool", "gpu"),
    "set_env_variable": lambda task: task.set_env_variable("A", "B"),
    "set_accelerator_limit": lambda task: task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1),
}


def compile_with(*settings):
    """Return the YAML and the warnings of a pipeline whose only task has these settings."""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)

        @dsl.pipeline
        def pipeline():
            task = trainjob_kfp.train(image="busybox", command=["true"])
            for apply in settings:
                apply(task)

    text = golden.compile_to_yaml(pipeline)
    return text, [warning for warning in caught if "launcher" in str(warning.message)]


@pytest.mark.parametrize("name", LAUNCHER_ONLY)
def test_a_setting_for_the_launcher_only_is_a_warning_at_its_line(name):
    apply, advice = LAUNCHER_ONLY[name]
    _, [warning] = compile_with(apply)
    rule = "applies to the launcher's pod only, not to the TrainJob: use the input"
    assert str(warning.message).startswith(f"{name} {rule} {advice}")
    assert (warning.filename, warning.lineno) == (__file__, apply.__code__.co_firstlineno)


def test_each_setting_is_one_warning():
    every = [apply for apply, _ in LAUNCHER_ONLY.values()]
    text, found = compile_with(*PASSED_ON.values(), *every, *every[:1])
    assert len(found) == len(every) + 1
    assert "activeDeadlineSeconds" in text  # the launcher's pod has it, as before


def test_settings_that_the_trainjob_gets_are_no_warnings():
    _, found = compile_with(*PASSED_ON.values())
    assert found == []


def test_the_advice_for_variables_of_pods_is_accepted():
    job = steps.train({"image": "busybox", "env": {"POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}}}}, None)
    assert job.trainer.env["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_the_clean_up_may_have_any_setting():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)

        @dsl.pipeline
        def pipeline():
            task = trainjob_kfp.cleanup()
            kubernetes.set_timeout(task, 60)
            with dsl.ExitHandler(task):
                trainjob_kfp.train(image="busybox", command=["true"])

    assert "activeDeadlineSeconds" in golden.compile_to_yaml(pipeline)


def test_parameters_in_settings_are_known_in_every_group():
    """Without it, the driver fails: the parent DAG does not have the input parameter."""

    @dsl.pipeline
    def pipeline(gpus: int, kind: str, cpu: str, memory: str, ready: bool):
        with dsl.ExitHandler(trainjob_kfp.cleanup()), dsl.If(ready == True):  # noqa: E712 - kfp builds the condition
            task = trainjob_kfp.train(image="busybox", command=["true"])
            task.set_accelerator_type(kind).set_accelerator_limit(gpus)
            task.set_cpu_request(cpu).set_cpu_limit(cpu).set_memory_request(memory).set_memory_limit(memory)

    names = {f"pipelinechannel--{name}" for name in ("gpus", "kind", "cpu", "memory")}
    groups = pipeline.pipeline_spec.components
    for name in ("comp-exit-handler-1", "comp-condition-2"):
        assert names <= {*groups[name].input_definitions.parameters}

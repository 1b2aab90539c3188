"""The Kubeflow SDK's client with its documented arguments on a laptop cluster."""

from __future__ import annotations

import logging
import warnings

import pytest

with warnings.catch_warnings():  # the SDK's models have a configuration that pydantic deprecates
    warnings.simplefilter("ignore")
    from kubeflow.common.types import KubernetesBackendConfig
    from kubeflow.trainer import CustomTrainer, CustomTrainerContainer, TrainerClient, options

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def sdk(laptop, caplog):
    with caplog.at_level(logging.WARNING):
        client = TrainerClient(KubernetesBackendConfig(config_file=str(laptop.kubeconfig), namespace="default"))
    assert [record.message for record in caplog.records if "version" in record.message] == []
    return client


def learn(steps):
    print(steps)


def test_a_trainjob_from_its_creation_to_its_deletion(sdk, unique):
    name = sdk.train(
        runtime=sdk.get_runtime("torch-distributed"),
        trainer=CustomTrainerContainer(
            image="busybox", num_nodes=2, resources_per_node={"cpu": 1, "memory": "1Gi"}, env={"WORD": "hello"}
        ),
        options=[
            options.Name(f"sdk-{unique}"[:40]),
            options.Labels({"team": "nlp"}),
            options.Annotations({"example.org/a": "b"}),
            options.ActiveDeadlineSeconds(600),
            options.TrainerCommand(["sh", "-c"]),
            options.TrainerArgs(["echo $WORD"]),
            options.RuntimePatch(
                training_runtime_spec=options.TrainingRuntimeSpecPatch(
                    template=options.JobSetTemplatePatch(metadata={"labels": {"a": "b"}})
                )
            ),
        ],
    )
    job = sdk.wait_for_job_status(name, timeout=60, polling_interval=1)
    assert (job.name, job.status, job.num_nodes) == (name, "Complete", 2)
    assert list(sdk.get_job_logs(name)) == ["hello"]
    assert name in [each.name for each in sdk.list_jobs()]
    assert sdk.get_job_events(name) is not None
    sdk.delete_job(name)


def test_whole_numbers_are_resources(sdk):
    """The SDK sends 1.0 for the number 1."""
    name = sdk.train(trainer=CustomTrainer(func=learn, func_args={"steps": 1}, resources_per_node={"cpu": 1, "gpu": 1}))
    assert sdk.get_job(name).num_nodes == 1
    sdk.delete_job(name)


def test_runtimes_are_listed(sdk):
    names = {runtime.name for runtime in sdk.list_runtimes()}
    assert {"torch-distributed", "torchtune-llama3.2-1b"} <= names

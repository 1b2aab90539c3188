"""From a component's arguments, and what is set on its task, to a step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kfp import dsl

from trainjob.errors import InvalidSpec
from trainjob.spec import SecretKeyReference
from trainjob_kfp import steps

FINE_TUNE = {"model": "llama3.2-1b", "workspace": "tickets"}
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


def test_what_is_empty_or_zero_was_not_given():
    empty = {"epochs": 0, "learning_rate": 0.0, "overrides": [], "config": {}, "secret": "", "queue": "", "env": {}}
    assert steps.fine_tune({**FINE_TUNE, **empty, "deadline_seconds": 0}, None) == steps.fine_tune(FINE_TUNE, None)


def test_arguments_reach_the_step():
    given = {"epochs": 3, "learning_rate": 3e-3, "lora_rank": 16, "queue": "gpu-team", "deadline_seconds": 60}
    step = steps.fine_tune({**FINE_TUNE, **given, "overrides": ["device=cpu"], "config": {"dtype": "fp32"}}, None)
    assert (step.config.epochs, step.config.learning_rate, step.config.overrides) == (3, 3e-3, ("device=cpu",))
    assert step.config.peft_config.lora_rank == 16
    assert step.config.dtype.value == "fp32"
    assert (step.queue.name, step.deadline) == ("gpu-team", timedelta(minutes=1))


def test_what_is_set_on_the_task_reaches_the_training_pods():
    step = steps.fine_tune(FINE_TUNE, TASK)
    assert step.config.resources_per_node == {"nvidia.com/gpu": "2", "cpu": "4", "memory": "16Gi"}
    assert step.env == {"MODE": "fast", "HF_TOKEN": SecretKeyReference(name="hf", key="token", optional=True)}
    assert list(step.placement.tolerations) == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert step.placement.node_selector == {"pool": "gpu"}
    assert step.placement.affinity == {"nodeAffinity": {}}


def test_it_does_so_for_every_component():
    store = {"storage_uri": "hf://demo/tickets", "workspace": "tickets"}
    made = [
        steps.initialize_dataset(store, TASK),
        steps.initialize_model(store, TASK),
        steps.export_model({"workspace": "tickets", "destination": "/workspace/export"}, TASK),
    ]
    for step in made:
        assert step.resources["memory"] == "16Gi"
        assert step.env["MODE"] == "fast"
        assert step.placement.node_selector == {"pool": "gpu"}
    job = steps.train({"command": ["python", "train.py"], "resources_per_node": {"cpu": "8"}}, TASK)
    assert job.trainer.resources_per_node == {"nvidia.com/gpu": "2", "cpu": "8", "memory": "16Gi"}
    assert job.trainer.env["MODE"] == "fast"
    assert job.placement.node_selector == {"pool": "gpu"}


def test_an_argument_counts_more_than_the_tasks_environment():
    assert steps.fine_tune({**FINE_TUNE, "env": {"MODE": "slow"}}, TASK).env["MODE"] == "slow"


def test_a_secret_is_given_as_a_reference():
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
        ({"deadline_seconds": -5}, None, "deadline"),
        ({}, dsl.TaskConfig(env=[{"name": "HF_TOKEN", "value": "hf_abcdef"}]), "HF_TOKEN"),
        ({}, dsl.TaskConfig(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]), "env.A"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(arguments, task, field):
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune({**FINE_TUNE, **arguments}, task)
    assert field in str(refused.value)
    assert "hf_abcdef" not in str(refused.value)

"""Tests of the launcher's run key, which is the same for every try of a task and different for other tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec, TrainJobError
from trainjob_kfp.identity import parse_executor_input, run_key_of_local_run, run_key_of_pod, workflow_owner_reference

RUN = "5d2a1c5e-4a53-4f3a-9a5e-6f2f3c0f9d11"


def launcher_pod(node, *, name="tickets-llm-x7d2k-system-container-impl-1", run=RUN, workflow="tickets-llm-x7d2k"):
    """Return a launcher's pod with the labels of Argo 4.0 and KFP 2.17."""
    labels = {"workflows.argoproj.io/workflow": workflow, "pipeline/runid": run}
    annotations = {"workflows.argoproj.io/node-name": f"{workflow}.{node}"}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


def test_the_run_key_of_a_plain_task_has_its_name():
    key = run_key_of_pod(launcher_pod("root.fine-tune.executor"))
    assert (key.engine, key.workflow, key.task, key.run) == ("kfp", "tickets-llm-x7d2k", "fine-tune", RUN)
    assert key.map_index == ""


@pytest.mark.parametrize(
    "node",
    [
        "root.fine-tune.executor(0)",
        "root.fine-tune.executor(2)",
        "root.fine-tune(1).executor(0)",  # a retry strategy from the workflow's defaults retries DAGs, too
        "root(0).fine-tune(1).executor(2)",
    ],
)
def test_another_try_in_another_pod_has_the_same_run_key(node):
    retried = run_key_of_pod(launcher_pod(node, name="tickets-llm-x7d2k-system-container-impl-999"))
    assert retried == run_key_of_pod(launcher_pod("root.fine-tune.executor"))


def test_iterations_nested_pipelines_tasks_and_runs_have_different_run_keys():
    keys = [
        run_key_of_pod(launcher_pod("root.fine-tune.executor")),
        run_key_of_pod(launcher_pod("root.fine-tune-2.executor")),
        run_key_of_pod(launcher_pod("root.for-loop-2.iteration-iterations(0:0).fine-tune.executor")),
        run_key_of_pod(launcher_pod("root.for-loop-2.iteration-iterations(1:1).fine-tune.executor")),
        run_key_of_pod(launcher_pod("root.for-loop-4.iteration-iterations(1:1).fine-tune.executor")),
        run_key_of_pod(launcher_pod("root.nightly.fine-tune.executor")),
        run_key_of_pod(launcher_pod("root.fine-tune.executor", run="another")),
    ]
    assert len({key.digest for key in keys}) == len(keys)


@given(index=st.integers(0, 500), attempt=st.integers(0, 9))
def test_the_run_key_of_an_iteration_has_its_index_and_is_the_same_for_all_tries(index, attempt):
    loop = f"root.for-loop-2.iteration-iterations({index}:{index})"
    key = run_key_of_pod(launcher_pod(f"{loop}.fine-tune.executor"))
    assert key == run_key_of_pod(launcher_pod(f"{loop}.fine-tune({attempt}).executor({attempt})"))
    assert key.task == "fine-tune"
    assert key.map_index.startswith(f"{index}-")


def test_a_pod_that_kfp_did_not_create_is_refused():
    with pytest.raises(TrainJobError, match=r"workflows\.argoproj\.io/workflow"):
        run_key_of_pod({"metadata": {"name": "a-notebook"}})


def local_executor_input(*, folder="tickets-llm-2026-11-21-07-48-16-643363/fine-tune", **arguments):
    output = f"/home/me/local_outputs/{folder}/executor_output.json"
    return {"inputs": {"parameterValues": arguments}, "outputs": {"outputFile": output}}


def test_a_local_task_is_identified_by_its_folder():
    key = run_key_of_local_run(local_executor_input(model="a"), "", task="step")
    assert (key.workflow, key.task, key.run) == ("tickets-llm", "fine-tune", "2026-11-21-07-48-16-643363")


def test_a_local_run_with_a_run_id_keeps_its_run_key_when_it_is_started_again():
    first = local_executor_input(model="a")
    again = local_executor_input(model="a", folder="tickets-llm-2026-11-21-09-00-00-000001/fine-tune")
    assert run_key_of_local_run(first, "nightly", task="x") == run_key_of_local_run(again, "nightly", task="x")
    assert run_key_of_local_run(first, "", task="x") != run_key_of_local_run(again, "", task="x")


def test_local_iterations_with_different_arguments_have_different_run_keys():
    first, second = (
        run_key_of_local_run(local_executor_input(model=model), "nightly", task="x") for model in ("a", "b")
    )
    assert first.digest != second.digest


def test_a_local_run_with_another_program_has_the_same_run_key():
    keys = [
        run_key_of_local_run(local_executor_input(model="a", program=program), "nightly", task="x")
        for program in ("packed", "image")
    ]
    assert keys[0] == keys[1]


def test_local_iterations_in_different_folders_have_different_run_keys():
    start = "tickets-llm-2026-11-21-07-48-16-643363"
    loops = ("for-loop-2-iteration-0/", "for-loop-2-iteration-1/", "for-loop-4-iteration-1/")
    keys = [
        run_key_of_local_run(local_executor_input(model="a", folder=f"{start}/{loop}train"), "nightly", task="x")
        for loop in ("", *loops)
    ]
    assert len({key.digest for key in keys}) == len(keys)
    assert {(key.workflow, key.task, key.run) for key in keys} == {("tickets-llm", "train", "nightly")}
    again = local_executor_input(
        model="a", folder="tickets-llm-2026-11-22-01-00-00-000000/for-loop-2-iteration-1/train"
    )
    assert run_key_of_local_run(again, "nightly", task="x") == keys[2]


def test_outside_of_kfp_each_start_is_a_separate_run_unless_it_has_a_run_id():
    assert run_key_of_local_run(None, "", task="tune") != run_key_of_local_run(None, "", task="tune")
    assert run_key_of_local_run(None, "mine", task="tune") == run_key_of_local_run(None, "mine", task="tune")


def test_the_executors_input_is_read_from_its_command_line():
    executor_input = {"outputs": {"outputFile": "/x"}}
    assert (
        parse_executor_input(
            ["executor_main.py", "--executor_input", json.dumps(executor_input), "--function_to_execute", "f"]
        )
        == executor_input
    )
    assert parse_executor_input(["pytest", "-x"]) is None
    assert parse_executor_input(["other", "--executor_input", "no json"]) is None


def owned_pod(*owners):
    pod = launcher_pod("root.fine-tune.executor")
    pod["metadata"] |= {"namespace": "ml", "ownerReferences": list(owners)}
    return pod


WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "name": "tickets-llm-x7d2k",
    "uid": "uid-7",
    "controller": True,
    "blockOwnerDeletion": True,
}


def test_the_workflow_becomes_an_owner_without_controller_and_block_owner_deletion():
    other = {**WORKFLOW, "kind": "ReplicaSet"}
    expected = {**WORKFLOW, "controller": False, "blockOwnerDeletion": False}
    assert workflow_owner_reference(owned_pod(other, WORKFLOW), "ml") == expected


@pytest.mark.parametrize(
    ("launcher", "namespace", "message"),
    [
        (None, "ml", "not a pod of a pipeline"),
        (owned_pod(), "ml", "no Workflow"),
        (owned_pod(WORKFLOW), "gpus", "gpus"),
    ],
)
def test_a_workflow_that_cannot_be_the_owner_is_an_error(launcher, namespace, message):
    with pytest.raises(InvalidSpec, match=message) as refused:
        workflow_owner_reference(launcher, namespace)
    assert refused.value.problems[0].field == "delete_with_run"

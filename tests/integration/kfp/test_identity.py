"""Who a launcher works for: the same for every try of a task, another for anything else."""

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


def test_a_plain_task_reads_as_it_is_called():
    key = run_key_of_pod(launcher_pod("root.fine-tune.executor"))
    assert (key.engine, key.workflow, key.task, key.run) == ("kfp", "tickets-llm-x7d2k", "fine-tune", RUN)
    assert key.map_index == ""


@pytest.mark.parametrize(
    "node",
    [
        "root.fine-tune.executor(0)",
        "root.fine-tune.executor(2)",
        "root.fine-tune(1).executor(0)",  # a retry strategy from the workflow's defaults makes tries of DAGs, too
        "root(0).fine-tune(1).executor(2)",
    ],
)
def test_another_try_in_another_pod_is_the_same(node):
    retried = run_key_of_pod(launcher_pod(node, name="tickets-llm-x7d2k-system-container-impl-999"))
    assert retried == run_key_of_pod(launcher_pod("root.fine-tune.executor"))


def test_iterations_nested_pipelines_tasks_and_runs_are_told_apart():
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
def test_an_iteration_is_the_same_over_its_tries_and_reads_its_index(index, attempt):
    loop = f"root.for-loop-2.iteration-iterations({index}:{index})"
    key = run_key_of_pod(launcher_pod(f"{loop}.fine-tune.executor"))
    assert key == run_key_of_pod(launcher_pod(f"{loop}.fine-tune({attempt}).executor({attempt})"))
    assert key.task == "fine-tune"
    assert key.map_index.startswith(f"{index}-")


def test_a_pod_of_something_else_is_refused():
    with pytest.raises(TrainJobError, match=r"workflows\.argoproj\.io/workflow"):
        run_key_of_pod({"metadata": {"name": "a-notebook"}})


def local_executor_input(*, folder="tickets-llm-2026-11-21-07-48-16-643363/fine-tune", **arguments):
    output = f"/home/me/local_outputs/{folder}/executor_output.json"
    return {"inputs": {"parameterValues": arguments}, "outputs": {"outputFile": output}}


def test_a_local_task_is_known_by_its_folder():
    key = run_key_of_local_run(local_executor_input(model="a"), "", task="step")
    assert (key.workflow, key.task, key.run) == ("tickets-llm", "fine-tune", "2026-11-21-07-48-16-643363")


def test_a_local_run_with_a_name_is_the_same_when_it_is_started_again():
    first = local_executor_input(model="a")
    again = local_executor_input(model="a", folder="tickets-llm-2026-11-21-09-00-00-000001/fine-tune")
    assert run_key_of_local_run(first, "nightly", task="x") == run_key_of_local_run(again, "nightly", task="x")
    assert run_key_of_local_run(first, "", task="x") != run_key_of_local_run(again, "", task="x")


def test_local_iterations_are_told_apart_by_their_arguments():
    one, two = (run_key_of_local_run(local_executor_input(model=model), "nightly", task="x") for model in ("a", "b"))
    assert one.digest != two.digest


def test_local_iterations_are_told_apart_by_their_folders_too():
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


def test_outside_of_kfp_each_start_is_a_run_of_its_own_unless_it_has_a_name():
    assert run_key_of_local_run(None, "", task="tune") != run_key_of_local_run(None, "", task="tune")
    assert run_key_of_local_run(None, "mine", task="tune") == run_key_of_local_run(None, "mine", task="tune")


def test_the_executors_input_is_on_its_command_line():
    told = {"outputs": {"outputFile": "/x"}}
    assert (
        parse_executor_input(["executor_main.py", "--executor_input", json.dumps(told), "--function_to_execute", "f"])
        == told
    )
    assert parse_executor_input(["pytest", "-x"]) is None
    assert parse_executor_input(["other", "--executor_input", "no json"]) is None


def owned_pod(*owners):
    made = launcher_pod("root.fine-tune.executor")
    made["metadata"] |= {"namespace": "ml", "ownerReferences": list(owners)}
    return made


WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "name": "tickets-llm-x7d2k",
    "uid": "uid-7",
    "controller": True,
    "blockOwnerDeletion": True,
}


def test_the_workflow_becomes_an_owner_that_controls_and_blocks_nothing():
    other = {**WORKFLOW, "kind": "ReplicaSet"}
    expected = {**WORKFLOW, "controller": False, "blockOwnerDeletion": False}
    assert workflow_owner_reference(owned_pod(other, WORKFLOW), "ml") == expected


@pytest.mark.parametrize(
    ("launcher", "namespace", "said"),
    [(None, "ml", "no pod of a pipeline"), (owned_pod(), "ml", "no Workflow"), (owned_pod(WORKFLOW), "gpus", "gpus")],
)
def test_where_the_workflow_can_own_nothing_that_is_said(launcher, namespace, said):
    with pytest.raises(InvalidSpec, match=said) as refused:
        workflow_owner_reference(launcher, namespace)
    assert refused.value.problems[0].field == "delete_with_run"

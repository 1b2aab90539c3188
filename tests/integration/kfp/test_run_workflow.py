"""The run's Workflow: whether it is an owner of the TrainJob, has `cleanup`, and is being terminated."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timezone

import pytest

from tests.support.kfp_pods import CompiledComponent
from tests.support.polling import wait_until
from trainjob.errors import InvalidSpec, PermissionDenied
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.spec import CustomTrainerContainer, TrainJob
from trainjob.status import derive_verdict
from trainjob_kfp import cleanup, train
from trainjob_kfp.run_workflow import (
    RunOwner,
    TerminationCheck,
    change_owners,
    choose_owner,
    has_cleanup,
    is_being_terminated,
    read_has_cleanup,
    without_workflow,
)

NOW = datetime(2026, 11, 24, 8, 0, tzinfo=timezone.utc)
WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "tickets-x7d2k", "uid": "uid-7"}
POD = {"metadata": {"name": "p", "namespace": "ml", "ownerReferences": [{**WORKFLOW, "controller": True}]}}
OWNER = {**WORKFLOW, "controller": False, "blockOwnerDeletion": False}


def workflow_of(*containers):
    """Return a Workflow with the containers of its components.

    KFP 2.17's compiler writes them into parameters.
    """
    values = [{"name": f"implementations-{number}", "value": json.dumps(one)} for number, one in enumerate(containers)]
    return {"spec": {"arguments": {"parameters": [{"name": "components-root", "value": "{}"}, *values]}}}


@pytest.fixture(scope="module")
def containers(tmp_path_factory):
    """Return the compiled containers of two components by name."""
    folder = tmp_path_factory.mktemp("components")
    compiled = {name: CompiledComponent(one, folder) for name, one in {"cleanup": cleanup, "train": train}.items()}
    return {name: {"command": one.command, "args": one.args} for name, one in compiled.items()}


def test_the_exit_task_is_found_among_the_components(containers):
    assert has_cleanup(workflow_of(containers["train"], containers["cleanup"]))
    assert not has_cleanup(workflow_of(containers["train"]))


def test_another_component_with_the_name_cleanup_is_not_the_exit_task(containers):
    foreign = {**containers["cleanup"], "command": ["python3", "-c", "print('cleanup')"]}
    assert not has_cleanup(workflow_of(foreign))
    assert not has_cleanup(workflow_of({"image": "busybox"}))


@pytest.mark.parametrize(
    ("spec", "started", "expected"),
    [
        ({}, "2026-11-24T07:00:00Z", False),
        ({"activeDeadlineSeconds": 0}, None, True),
        ({"activeDeadlineSeconds": 3600}, "2026-11-24T07:00:00Z", True),
        ({"activeDeadlineSeconds": 3601}, "2026-11-24T07:00:00Z", False),
        ({"activeDeadlineSeconds": 3600}, None, False),
        ({"shutdown": "Terminate"}, "2026-11-24T07:00:00Z", True),
        ({"shutdown": "Stop"}, "2026-11-24T07:00:00Z", True),
    ],
)
def test_a_workflow_is_being_terminated(spec, started, expected):
    assert is_being_terminated({"spec": spec, "status": {"startedAt": started}}, NOW) is expected


class WorkflowReader:
    """Cluster that responds to each read of a Workflow with a result or an error."""

    def __init__(self, result):
        self.result, self.released = result, threading.Event()
        self.released.set()

    def get_object(self, resource, name, namespace):
        assert (resource.plural, name, namespace) == ("workflows", "tickets-x7d2k", "ml")
        self.released.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"spec": {"activeDeadlineSeconds": 0}}, True),
        (None, True),
        ({"spec": {}}, False),
        (PermissionDenied("workflows is forbidden"), False),
    ],
)
def test_a_signal_reads_whether_the_run_is_being_terminated(result, expected):
    with TerminationCheck(WorkflowReader(result), POD) as check:
        assert check.is_being_terminated() is expected


def test_a_late_response_counts_as_no_termination():
    reader = WorkflowReader({"spec": {"activeDeadlineSeconds": 0}})
    reader.released.clear()
    with TerminationCheck(reader, POD) as check:
        assert not check.is_being_terminated()
        reader.released.set()


def test_a_workflow_that_may_not_be_read_is_reported(capsys):
    error = PermissionDenied("workflows.argoproj.io is forbidden")
    assert not read_has_cleanup(WorkflowReader(error), POD)
    assert "warning: Workflow tickets-x7d2k cannot be read" in capsys.readouterr().out


def test_a_process_without_a_workflow_has_no_exit_task(capsys):
    assert not read_has_cleanup(WorkflowReader(None), None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("pod", "namespace", "changes", "expected"),
    [
        (POD, "ml", {}, OWNER),
        (POD, "ml", {"may_outlive_run": True}, None),
        (POD, "ml", {"may_outlive_run": True, "delete_with_run": True}, OWNER),
        (POD, "gpus", {}, None),
        (POD, "ml", {"same_cluster": False}, None),
        (None, "ml", {}, None),
        ({"metadata": {"name": "p", "namespace": "ml"}}, "ml", {}, None),
    ],
)
def test_the_workflow_is_the_owner_of_a_trainjob_that_ends_with_the_run(pod, namespace, changes, expected):
    settings = {"same_cluster": True, "may_outlive_run": False, "delete_with_run": False, **changes}
    assert choose_owner(pod, namespace, **settings) == expected


def test_delete_with_run_needs_the_cluster_of_the_run():
    with pytest.raises(InvalidSpec, match="another cluster"):
        choose_owner(POD, "ml", same_cluster=False, may_outlive_run=False, delete_with_run=True)


def test_only_workflows_of_this_name_are_removed():
    others = [{**WORKFLOW, "name": "other"}, {**WORKFLOW, "kind": "ConfigMap"}]
    assert without_workflow([others[0], {**WORKFLOW, "uid": "earlier"}, others[1]], WORKFLOW["name"]) == others


@pytest.fixture
def job(cluster, unique):
    """Submit a TrainJob that runs, and cancel it afterwards."""
    step = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "600"]))
    reference = submit(cluster, step, RunKey("kfp", "tickets", unique, "run-1"))
    yield reference
    cancel(cluster, reference)


CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def owners(cluster, unique):
    """Create a placeholder of a Workflow and another object, and return references."""
    names = {"Workflow": f"{unique}-workflow", "ConfigMap": f"{unique}-other"}
    made = {}
    for kind, name in names.items():
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        created = cluster._http.request("POST", CONFIGMAPS, doing="create an owner", body=body)
        made[kind] = {"apiVersion": "v1", "kind": kind, "name": name, "uid": created["metadata"]["uid"]}
    return {kind: {**one, "controller": False, "blockOwnerDeletion": False} for kind, one in made.items()}


def owner_names(cluster, job):
    found = cluster.get_trainjob(job.name, job.namespace)["metadata"].get("ownerReferences") or []
    return [owner["name"] for owner in found]


def test_an_adopted_trainjob_gets_the_recreated_workflow_as_owner(cluster, job, owners):
    workflow, other = owners["Workflow"], owners["ConfigMap"]
    earlier = {**workflow, "uid": other["uid"]}
    change_owners(cluster, job, lambda _: [earlier, other])
    owner = RunOwner(cluster, workflow)
    owner.add_to(job)
    found = cluster.get_trainjob(job.name, job.namespace)["metadata"]["ownerReferences"]
    assert [(one["name"], one["uid"]) for one in found] == [
        (other["name"], other["uid"]),
        (workflow["name"], workflow["uid"]),
    ]
    owner.remove_from(job)
    assert owner_names(cluster, job) == [other["name"]]


def test_a_trainjob_that_is_deleted_with_its_run_retains_the_owner(cluster, job, owners):
    owner = RunOwner(cluster, owners["Workflow"], after_end=True)
    owner.add_to(job)
    owner.remove_from(job)
    assert owner_names(cluster, job) == [owners["Workflow"]["name"]]


def test_an_owner_that_is_added_during_the_change_is_not_lost(cluster, job, owners):
    """The first patch conflicts, because another program has added an owner since the TrainJob was read."""
    calls = []

    def add_workflow(found):
        calls.append(found)
        if len(calls) == 1:
            cluster.patch_trainjob(job.name, job.namespace, job.uid, ownerReferences=[owners["ConfigMap"]])
        return [*(found["metadata"].get("ownerReferences") or []), owners["Workflow"]]

    change_owners(cluster, job, add_workflow)
    assert len(calls) > 1  # more, if a controller has changed the status meanwhile
    assert owner_names(cluster, job) == [owners["ConfigMap"]["name"], owners["Workflow"]["name"]]


def test_a_finished_trainjob_without_owner_stays_without_one(cluster, unique, owners):
    step = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
    done = submit(cluster, step, RunKey("kfp", "tickets", unique, "run-1"))
    wait_until(lambda: derive_verdict(cluster.get_trainjob(done.name, done.namespace)).phase.finished)
    RunOwner(cluster, owners["Workflow"]).add_to(done)
    assert owner_names(cluster, done) == []

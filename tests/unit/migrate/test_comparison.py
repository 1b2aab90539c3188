"""Tests of the comparison of a v1 job and a TrainJob."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob_migrate.comparison import compare

IMAGE, SECRET = "example.com/train:1", "hf_TheSecretThatNobodyMaySee"
RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
TIMES = {"startedAt": "2026-01-01T10:00:10Z", "finishedAt": "2026-01-01T10:01:10Z"}


def pod(labels, env, *, name="pytorch", command=("python", "train.py"), code=0, restarts=0):
    container = {"name": name, "image": IMAGE, "command": list(command), "env": env}
    container["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    status = {"name": name, "restartCount": restarts, "state": {"terminated": {"exitCode": code, **TIMES}}}
    sidecar = {"name": "istio-proxy", "image": "other"}
    metadata = {"name": "p", "creationTimestamp": "2026-01-01T10:00:05Z", "labels": labels}
    return {
        "metadata": metadata,
        "spec": {"containers": [sidecar, container]},
        "status": {"containerStatuses": [status]},
    }


def literal_variables(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


def old_pod(role, index, rank, extra=(), **more):
    """Return a pod as the operator creates it.

    Source: training operator 1.9 pkg/controller.v1/pytorch/envvar.go.
    """
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}
    own = literal_variables(
        MASTER_ADDR="mnist-master-0", MASTER_PORT="23456", WORLD_SIZE="2", RANK=str(rank), PET_NNODES="2"
    )
    return pod(labels, [*extra, *own], **more)


def new_pod(rank, extra=(), step="node", **more):
    """Return a pod as the Trainer creates it.

    Source: Trainer 2.3 pkg/runtime/framework/plugins/torch/torch.go.
    """
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "batch.kubernetes.io/job-completion-index": str(rank),
    }
    own = literal_variables(PET_NNODES="2", PET_NPROC_PER_NODE="1", PET_MASTER_PORT="29500")
    return pod(labels, [*extra, *own], name=step, **more)


def old_job(**status):
    template = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE, "command": ["python", "train.py"]}]}}
    replicas = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    metadata = {"name": "mnist", "namespace": "ml", "creationTimestamp": "2026-01-01T10:00:00Z"}
    spec = {"pytorchReplicaSpecs": replicas}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": spec, "status": status}


def new_job(kind="Complete", **trainer):
    metadata = {"name": "mnist-2", "namespace": "ml", "creationTimestamp": "2026-01-01T10:00:00Z"}
    condition = {"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T10:02:00Z"}
    trainer = {"image": IMAGE, "command": ["python", "train.py"], "numNodes": 2, **trainer}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"kind": "TrainJob", "metadata": metadata, "spec": spec, "status": {"conditions": [condition]}}


def ended_status(kind):
    conditions = [{"type": one, "status": "True"} for one in ("Created", kind)]
    return {
        "conditions": conditions,
        "startTime": "2026-01-01T10:00:00Z",
        "completionTime": "2026-01-01T10:03:00Z",
    }


OLD_PODS = [old_pod("worker", 0, 1), old_pod("master", 0, 0)]
NEW_PODS = [new_pod(1), new_pod(0), new_pod(0, step="dataset-initializer")]


def compare_rows(*arguments):
    return {row.aspect: row for row in compare(*arguments).rows}


def test_equal_jobs_agree_in_all_compared_aspects():
    injected = literal_variables(WORLD_SIZE="2")
    pods = [new_pod(rank, injected) for rank in (0, 1)]
    rows = compare_rows(old_job(**ended_status("Succeeded")), OLD_PODS, new_job(), pods)
    same = ("state", "exit codes", "pods", "world size", "image", "command", "limits", "env WORLD_SIZE")
    assert [rows[aspect].same for aspect in same] == [True] * len(same)
    assert (rows["state"].before, rows["state"].after) == ("Succeeded", "Complete")
    assert (rows["pods"].before, rows["pods"].after) == ("Master 1, Worker 1", "node 2")
    assert (rows["world size"].before, rows["world size"].after) == ("2", "2")
    assert (rows["from start to end"].before, rows["from start to end"].after) == ("0:03:00", "0:02:00")
    assert rows["containers ran for"].before == rows["containers ran for"].after == "0:01:00"
    assert rows["env RANK"].before == "Master 0: 0, Worker 0: 1"


def test_missing_operator_variables_are_differences_with_a_note():
    rows = compare_rows(old_job(), OLD_PODS, new_job(), NEW_PODS)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        assert rows[f"env {name}"].same is False
        assert "trains alone" in rows[f"env {name}"].note


def test_variables_that_each_platform_sets_are_no_differences():
    given = literal_variables(JOBSET_NAME="m", MASTER_ADDR="m", MASTER_PORT="1", RANK="x", WORLD_SIZE="3")
    rows = compare_rows(old_job(), OLD_PODS, new_job(), [new_pod(rank, given) for rank in (0, 1)])
    own = ("JOBSET_NAME", "MASTER_ADDR", "MASTER_PORT", "RANK", "PET_MASTER_PORT", "PET_NPROC_PER_NODE", "PET_NNODES")
    assert [rows[f"env {name}"].same for name in own] == [None] * len(own)
    assert rows["env WORLD_SIZE"].same is False  # this variable must be equal
    assert rows["world size"].same is False


def test_variables_that_torchrun_sets_are_no_differences():
    pods = [new_pod(rank, command=("torchrun", "train.py")) for rank in (0, 1)]
    rows = compare_rows(old_job(), OLD_PODS, new_job(), pods)
    assert rows["env RANK"].same is None
    assert rows["command"].same is False
    assert rows["command"].after == "torchrun train.py"


def test_a_reference_is_shown_by_its_name_and_key():
    field = [{"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK}}}]
    secret = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]
    rows = compare_rows(old_job(), [old_pod("master", 0, 0, secret)], new_job(), [new_pod(0, field + secret)])
    assert rows["env RANK"].after == f"fieldRef {RANK}"
    assert rows["env HF_TOKEN"].same
    assert rows["env HF_TOKEN"].before == "secretKeyRef hf/token"


@pytest.mark.parametrize("other", [SECRET, SECRET + "2"])
def test_a_secret_is_compared_but_not_shown(other):
    before = [
        old_pod("master", 0, 0, literal_variables(HF_TOKEN=SECRET), command=["python", "t.py", f"--token={SECRET}"])
    ]
    after = [new_pod(0, literal_variables(HF_TOKEN=other), command=["python", "t.py", f"--token={other}"])]
    comparison = compare(old_job(), before, new_job(), after)
    rows = {row.aspect: row for row in comparison.rows}
    assert rows["env HF_TOKEN"].before == rows["env HF_TOKEN"].after == "***"
    assert rows["env HF_TOKEN"].same is (other == SECRET)
    assert rows["command"].same is (other == SECRET)
    assert SECRET not in json.dumps(comparison.to_dict())


def test_a_failure_differs_in_state_exit_codes_and_restarts():
    failed = [new_pod(0, code=0), new_pod(1, code=3, restarts=2)]
    rows = compare_rows(old_job(**ended_status("Succeeded")), OLD_PODS, new_job("Failed"), failed)
    assert rows["state"].same is False
    assert rows["exit codes"].after == "node 0: 0, node 1: 3"
    assert rows["exit codes"].same is False
    assert rows["restarts"].after == "2"


def test_without_pods_the_values_of_the_specs_are_compared():
    rows = compare_rows(old_job(), [], new_job(), [])
    assert (rows["pods"].before, rows["pods"].after, rows["pods"].same) == ("Master 1, Worker 1", "node 2", True)
    assert "no pods" in rows["pods"].note
    assert rows["image"].same
    assert rows["exit codes"].before == rows["exit codes"].after == "-"
    assert rows["exit codes"].same is None
    assert rows["state"].before == "not started"


def test_pods_of_the_mpi_operator_have_their_roles():
    """These pods have only the label job-role (mpi-operator 0.8 pkg/controller/mpi_job_controller.go)."""
    roles = [("worker", "1"), ("launcher", "0"), ("worker", "0")]
    prefix = "training.kubeflow.org/"
    labels = [{f"{prefix}job-role": role, f"{prefix}replica-index": index} for role, index in roles]
    job = old_job() | {"spec": {"slotsPerWorker": 4}}
    pods = [pod(one, [], name="mpi", code=index) for index, one in enumerate(labels)]
    rows = compare_rows(job, pods, new_job(numProcPerNode=4), [])
    assert (rows["world size"].before, rows["world size"].after) == ("8", "8")  # without the launcher
    assert rows["pods"].before == "Launcher 1, Worker 2"
    assert rows["exit codes"].before == "Launcher 0: 1, Worker 0: 2, Worker 1: 0"


def test_values_of_many_pods_are_shortened():
    pods = [old_pod("worker", index, index) for index in range(64)]
    row = compare_rows(old_job(), pods, new_job(), NEW_PODS)["env RANK"]
    assert row.before == "Worker 0: 0, Worker 1: 1, Worker 2: 2, Worker 3: 3, ... (64 pods)"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def walk_paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from walk_paths(inner, (*path, key))


@given(st.data())
def test_malformed_objects_do_not_raise(data):
    """A proxy or a changed CRD may return any value for any field, except for the name of an object."""
    everything = copy.deepcopy([old_job(**ended_status("Failed")), OLD_PODS, new_job(), NEW_PODS])
    place = data.draw(st.sampled_from([path for path in walk_paths(everything) if len(path) > 2]))
    inner = everything
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = data.draw(JSON)
    compare(*everything).to_dict()

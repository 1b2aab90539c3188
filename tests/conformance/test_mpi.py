"""MPI runtimes: a launcher that runs the training on nodes that started before it."""

from __future__ import annotations

import base64

import pytest

from tests.conformance.admission_cases import denied, dry_run_cases, trainer_case
from tests.conformance.built_jobsets import (
    create_jobsets,
    find_container,
    find_pod_spec,
    find_replicated_job,
    read_environment,
)
from tests.conformance.runtimes import create_runtime
from tests.support.trainjobs import IMAGE, list_pods, train_job
from trainjob import CustomTrainerContainer, Placement, RunKey, Runtime, TrainJob, WorkspaceVolume
from trainjob.lifecycle import Listener, submit, wait
from trainjob.manifest import build_trainjob
from trainjob.status import Phase

pytestmark = [pytest.mark.since("2.3"), pytest.mark.only("controlplane")]
STOCK = ("deepspeed-distributed", "mlx-distributed")


@pytest.fixture
def runtime(client, namespace):
    """Create a runtime like deepspeed-distributed whose nodes need no SSH server."""
    spec = client.get("ClusterTrainingRuntime", None, "deepspeed-distributed")["spec"]
    for job in spec["template"]["spec"]["replicatedJobs"]:
        (one,) = job["template"]["spec"]["template"]["spec"]["containers"]
        one["image"] = IMAGE
        if job["name"] == "node":
            one.update(command=["sh", "-c", "echo up; exec sleep 60"], args=[])
    create_runtime(client, namespace, spec)
    return Runtime(name="own", kind="TrainingRuntime")


@pytest.mark.parametrize("name", STOCK)
def test_objects_of_an_mpi_job(client, namespace, name, evidence):
    """A job gets a launcher, one node less than requested, a ConfigMap with its hosts, and a Secret with SSH keys."""
    trainer = {"numNodes": 3, "numProcPerNode": 2, "env": [{"name": "A", "value": "1"}], "command": ["mpirun", "true"]}
    jobset = create_jobsets(client, namespace, {"job": train_job(runtime=name, trainer=trainer)})["job"]
    counts = {one["name"]: one["template"]["spec"]["parallelism"] for one in jobset["spec"]["replicatedJobs"]}
    assert counts == {"node": 2, "launcher": 1}
    assert jobset["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    assert find_replicated_job(jobset, "launcher")["dependsOn"] == [{"name": "node", "status": "Ready"}]
    (launcher,), node = find_pod_spec(jobset, "launcher")["containers"], find_container(jobset)
    assert launcher["command"] == ["mpirun", "true"]
    assert node["command"] == ["/usr/sbin/sshd"]
    assert read_environment(node) == {"A": "1"}
    assert read_environment(launcher) == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "A": "1",
    }
    mounts = {one["name"]: one["mountPath"] for one in launcher["volumeMounts"]}
    assert mounts == {"mpi-ssh-auth": "/home/mpiuser/.ssh", "mpi-hostfile": "/etc/mpi"}
    hosts = client.wait_for("ConfigMap", namespace, "job-mpi-hostfile", bool)["data"]["hostfile"]
    assert sorted(hosts.splitlines()) == [
        f"job-{host}.job slots=2" for host in ("launcher-0-0", "node-0-0", "node-0-1")
    ]
    secret = client.wait_for("Secret", namespace, "job-mpi-ssh-auth", bool)
    assert (secret["type"], secret["immutable"]) == ("kubernetes.io/ssh-auth", True)
    assert base64.b64decode(secret["data"]["ssh-privatekey"]).startswith(b"-----BEGIN EC PRIVATE KEY-----")
    evidence("features", row="MPI", cell="control plane")


def test_one_node(client, namespace):
    """A job of one node gets a launcher, which takes part in the training, and one node."""
    jobs = {
        name: train_job(runtime=STOCK[0], trainer=given) for name, given in (("none", {}), ("one", {"numNodes": 1}))
    }
    for jobset in create_jobsets(client, namespace, jobs).values():
        counts = [one["template"]["spec"]["parallelism"] for one in jobset["spec"]["replicatedJobs"]]
        assert counts == [1, 1]


def test_reserved_variables(client, namespace, target):
    """A TrainJob may not set the Open MPI variables that the Trainer sets."""
    env = [{"name": "OMPI_MCA_plm_rsh_args", "value": "x"}]
    text = (
        'spec.trainer.env: Invalid value: [{"name":"OMPI_MCA_plm_rsh_args","value":"x"}]: must not have reserved envs, '
        "invalid envs configured: [OMPI_MCA_plm_rsh_args]"
    )
    case = trainer_case("reserved", denied(text), env=env)
    case.job["spec"]["runtimeRef"]["name"] = STOCK[0]
    found, expected = dry_run_cases(client, namespace, target.trainer, [case])
    assert found == expected


@pytest.mark.parametrize("name", STOCK)
def test_requests_apply_to_launcher_and_nodes(client, namespace, name):
    """Workspace, placement, resources and variables apply to launcher and nodes, the command to the launcher only."""
    trainer = CustomTrainerContainer(
        image=IMAGE, command=["true"], num_nodes=2, resources_per_node={"cpu": 1}, env={"A": "1"}
    )
    request = TrainJob(
        trainer=trainer,
        runtime=name,
        workspace=WorkspaceVolume(claim="w"),
        placement=Placement(node_selector={"a": "b"}),
    )
    jobset = create_jobsets(client, namespace, {"job": build_trainjob(request, name="job", namespace=namespace)})["job"]
    for job in ("launcher", "node"):
        pod = find_pod_spec(jobset, job)
        (one,) = pod["containers"]
        assert pod["nodeSelector"] == {"a": "b"}
        assert {"name": "workspace", "mountPath": "/workspace"} in one["volumeMounts"]
        assert one["resources"]["limits"] == {"cpu": "1"}
        assert read_environment(one)["A"] == "1"
    assert [find_pod_spec(jobset, job)["containers"][0]["command"][0] for job in ("launcher", "node")] == [
        "true",
        "/usr/sbin/sshd",
    ]


def test_a_successful_run(cluster, runtime, unique, gate, evidence):
    """A job is Running when its launcher runs, not its nodes. The logs of all pods are followed."""
    file, wait_command = gate
    command = ["sh", "-c", f"sort /etc/mpi/hostfile; {wait_command}"]
    trainer = CustomTrainerContainer(image=IMAGE, command=command, num_nodes=3, num_proc_per_node=2)
    key = RunKey("conformance", "mpi", unique, "run-1")
    verdicts, lines, node_lines = [], [], {"[node-0] up", "[node-1] up"}

    def finish_if_complete():
        if any(verdict.phase is Phase.RUNNING for verdict in verdicts) and node_lines <= set(lines):
            file.touch()

    def record_phase(verdict):
        verdicts.append(verdict)
        finish_if_complete()

    def record_line(line):
        lines.append(str(line))
        finish_if_complete()

    reference = submit(cluster, TrainJob(trainer=trainer, runtime=runtime), key)
    outcome = wait(cluster, reference, listener=Listener(on_phase=record_phase, on_log=record_line))
    outcome.raise_for_failure()
    assert {verdict.step for verdict in verdicts if verdict.phase is Phase.RUNNING} == {"launcher"}
    assert node_lines <= set(lines)
    assert sum(line.startswith("[launcher-0] ") and line.endswith(" slots=2") for line in lines) == 3
    evidence("features", row="MPI", cell="control plane")


def test_a_failed_launcher(client, cluster, namespace, runtime, unique):
    """If the launcher fails, its step and exit code are reported, not those of the nodes that end with it."""
    trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", "echo why; exit 3"])
    key = RunKey("conformance", "mpi", unique, "run-1")
    outcome = wait(cluster, submit(cluster, TrainJob(trainer=trainer, runtime=runtime), key))
    assert (outcome.step, outcome.rank, outcome.exit_code, outcome.log_tail) == ("launcher", 0, 3, ("why",))
    assert not list_pods(client, namespace, outcome.job) or outcome.phase is Phase.FAILED

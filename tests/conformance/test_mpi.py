"""MPI runtimes: a launcher that starts the training on nodes, which are up before it."""

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
from trainjob import CustomTrainerContainer, Placement, RunKey, Runtime, TrainJob, Workspace
from trainjob.lifecycle import Listener, submit, wait
from trainjob.manifest import build_trainjob
from trainjob.status import Phase

pytestmark = [pytest.mark.since("2.3"), pytest.mark.only("controlplane")]
STOCK = ("deepspeed-distributed", "mlx-distributed")


@pytest.fixture
def runtime(client, namespace):
    """A runtime like deepspeed-distributed whose nodes need no ssh server."""
    spec = client.get("ClusterTrainingRuntime", None, "deepspeed-distributed")["spec"]
    for job in spec["template"]["spec"]["replicatedJobs"]:
        (one,) = job["template"]["spec"]["template"]["spec"]["containers"]
        one["image"] = IMAGE
        if job["name"] == "node":
            one.update(command=["sh", "-c", "echo up; exec sleep 60"], args=[])
    create_runtime(client, namespace, spec)
    return Runtime(name="own", kind="TrainingRuntime")


@pytest.mark.parametrize("name", STOCK)
def test_objects(client, namespace, name, evidence):
    """A job has a launcher and one node less than it asks for, its hosts in a ConfigMap, and keys in a Secret."""
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


def test_one_node_is_two(client, namespace):
    """One node is a launcher that trains, and a node beside it: there is always one."""
    jobs = {
        name: train_job(runtime=STOCK[0], trainer=given) for name, given in (("none", {}), ("one", {"numNodes": 1}))
    }
    for jobset in create_jobsets(client, namespace, jobs).values():
        counts = [one["template"]["spec"]["parallelism"] for one in jobset["spec"]["replicatedJobs"]]
        assert counts == [1, 1]


def test_reserved_variables(client, namespace, target):
    """A TrainJob may not set Open MPI's variables that the Trainer sets."""
    env = [{"name": "OMPI_MCA_plm_rsh_args", "value": "x"}]
    said = (
        'spec.trainer.env: Invalid value: [{"name":"OMPI_MCA_plm_rsh_args","value":"x"}]: must not have reserved envs, '
        "invalid envs configured: [OMPI_MCA_plm_rsh_args]"
    )
    case = trainer_case("reserved", denied(said), env=env)
    case.job["spec"]["runtimeRef"]["name"] = STOCK[0]
    found, expected = dry_run_cases(client, namespace, target.trainer, [case])
    assert found == expected


@pytest.mark.parametrize("name", STOCK)
def test_what_a_step_asks_for_reaches_launcher_and_nodes(client, namespace, name):
    """Workspace, placement, resources and variables reach the launcher and the nodes; the command the launcher only."""
    trainer = CustomTrainerContainer(
        image=IMAGE, command=["true"], num_nodes=2, resources_per_node={"cpu": 1}, env={"A": "1"}
    )
    request = TrainJob(
        trainer=trainer, runtime=name, workspace=Workspace(claim="w"), placement=Placement(node_selector={"a": "b"})
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


def test_a_run(cluster, runtime, unique, gate, evidence):
    """The job runs when its launcher does, not when nodes wait for it; its end is the launcher's; all logs are told."""
    file, until_told = gate
    command = ["sh", "-c", f"sort /etc/mpi/hostfile; {until_told}"]
    trainer = CustomTrainerContainer(image=IMAGE, command=command, num_nodes=3, num_proc_per_node=2)
    key = RunKey("conformance", "mpi", unique, "run-1")
    verdicts, lines, ups = [], [], {"[node-0] up", "[node-1] up"}

    def let_it_end_when_all_is_heard():
        if any(verdict.phase is Phase.RUNNING for verdict in verdicts) and ups <= set(lines):
            file.touch()

    def hear(verdict):
        verdicts.append(verdict)
        let_it_end_when_all_is_heard()

    def read(line):
        lines.append(str(line))
        let_it_end_when_all_is_heard()

    reference = submit(cluster, TrainJob(trainer=trainer, runtime=runtime), key)
    outcome = wait(cluster, reference, listener=Listener(on_phase=hear, on_log=read))
    outcome.raise_for_failure()
    assert {verdict.step for verdict in verdicts if verdict.phase is Phase.RUNNING} == {"launcher"}
    assert ups <= set(lines)
    assert sum(line.startswith("[launcher-0] ") and line.endswith(" slots=2") for line in lines) == 3
    evidence("features", row="MPI", cell="control plane")


def test_a_failure(client, cluster, namespace, runtime, unique):
    """When the launcher fails, its step and exit code are told, not those of the nodes that are ended with it."""
    trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", "echo why; exit 3"])
    key = RunKey("conformance", "mpi", unique, "run-1")
    outcome = wait(cluster, submit(cluster, TrainJob(trainer=trainer, runtime=runtime), key))
    assert (outcome.step, outcome.rank, outcome.exit_code, outcome.log_tail) == ("launcher", 0, 3, ("why",))
    assert not list_pods(client, namespace, outcome.job) or outcome.phase is Phase.FAILED

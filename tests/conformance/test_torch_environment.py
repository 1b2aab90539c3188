"""Variables and resources of processes on torch runtimes: PET_ variables and the number of processes."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    create_jobsets,
    find_container,
    find_replicated_job,
    gpu_resources,
    read_environment,
)
from tests.conformance.runtimes import create_runtime
from tests.support.trainjobs import is_finished, list_pods, shell, train_job

RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
LLAMA = TORCHTUNE_RUNTIMES["llama3.2-1b"]
MIG = "nvidia.com/mig-1g.5gb"
# Case: fields of spec.trainer, PET_NNODES, PET_NPROC_PER_NODE.
COUNTS = {
    "nothing": ({"command": ["true"]}, "1", "1"),
    "both": ({"numNodes": 2, "numProcPerNode": 3}, "2", "3"),
    "no-node": ({"numNodes": 0}, "0", "1"),
    "no-process": ({"numNodes": 1, "numProcPerNode": 0}, "1", "0"),
    "gpus": ({"resourcesPerNode": gpu_resources(2)}, "1", "auto"),
    "gpus-and-cpus": ({"resourcesPerNode": gpu_resources(2, cpu="8")}, "1", "auto"),
    "other-gpus": ({"resourcesPerNode": {"limits": {"amd.com/gpu": "1"}}}, "1", "auto"),
    "no-gpus": ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "0"}, "requests": {"cpu": "2"}}}, "1", "2"),
    "gpus-and-a-count": ({"resourcesPerNode": gpu_resources(2), "numNodes": 1, "numProcPerNode": 1}, "1", "1"),
    "mig": ({"resourcesPerNode": {"limits": {MIG: "2"}}}, "1", "1"),
    "mig-and-cpus": ({"resourcesPerNode": {"limits": {MIG: "2", "cpu": "4"}}}, "1", "4"),
    "tpus": ({"resourcesPerNode": {"limits": {"google.com/tpu": "4"}}}, "1", "1"),
    "cpus": ({"resourcesPerNode": {"requests": {"cpu": "3"}}}, "1", "3"),
    "cpu-limit": ({"resourcesPerNode": {"limits": {"cpu": "3"}}}, "1", "3"),
    "cpu-both": ({"resourcesPerNode": {"limits": {"cpu": "8"}, "requests": {"cpu": "2"}}}, "1", "2"),
    "cpu-parts": ({"resourcesPerNode": {"requests": {"cpu": "1500m"}}}, "1", "2"),
    "cpu-less": ({"resourcesPerNode": {"requests": {"cpu": "100m"}}}, "1", "1"),
    "memory": ({"resourcesPerNode": {"requests": {"memory": "1Gi"}}}, "1", "1"),
}


def test_node_and_process_counts(client, namespace):
    """The number of processes is auto with GPUs, otherwise the CPUs, rounded up. MIG slices do not count."""
    jobs = {name: train_job(trainer=trainer) for name, (trainer, _, _) in COUNTS.items()}
    variables = {
        name: read_environment(find_container(one)) for name, one in create_jobsets(client, namespace, jobs).items()
    }
    counts = {name: (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) for name, env in variables.items()}
    assert counts == {name: (nodes, processes) for name, (_, nodes, processes) in COUNTS.items()}


@pytest.mark.before("2.2")
def test_num_proc_per_node_before_2_2(client, namespace):
    """Up to 2.1 numProcPerNode can be cpu, which counts CPUs even with GPUs, or gpu, which is passed on."""
    both = {"numNodes": 1, "resourcesPerNode": gpu_resources(2, cpu="3")}
    jobs = {word: train_job(trainer={"numProcPerNode": word, **both}) for word in ("auto", "cpu", "gpu")}
    variables = {
        name: read_environment(find_container(one)) for name, one in create_jobsets(client, namespace, jobs).items()
    }
    processes = {name: env["PET_NPROC_PER_NODE"] for name, env in variables.items()}
    assert processes == {"auto": "auto", "cpu": "3", "gpu": "gpu"}


def test_variables(client, namespace):
    """The trainer's own variables come first, then nodes, processes, rank, and the first node's address and port."""
    env = [{"name": "B", "value": "2"}, {"name": "A", "value": "$(B)"}]
    jobset = create_jobsets(client, namespace, {"job": train_job(trainer={"env": env, "numNodes": 2})})["job"]
    assert list(read_environment(find_container(jobset)).items()) == [
        *[("B", "2"), ("A", "$(B)"), ("PET_NNODES", "2"), ("PET_NPROC_PER_NODE", "1"), ("PET_NODE_RANK", RANK)],
        *[("PET_MASTER_ADDR", "job-node-0-0.job"), ("PET_MASTER_PORT", "29500")],
    ]
    assert find_container(jobset)["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]
    spec = find_replicated_job(jobset)["template"]["spec"]
    assert (find_replicated_job(jobset)["replicas"], spec["parallelism"], spec["completions"]) == (1, 2, 2)


def test_without_a_trainer(client, namespace):
    """Without spec.trainer, the container has no variables and no port beyond the runtime's."""
    found = find_container(create_jobsets(client, namespace, {"job": train_job()})["job"])
    assert [key for key in ("env", "ports", "command", "args") if key in found] == []


def create_customized_runtime(client, namespace, **spec):
    """Create a copy of torch-distributed with variables, resources and a port."""
    stock = client.get("ClusterTrainingRuntime", None, "torch-distributed")["spec"]
    inner = stock["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    inner["env"] = [{"name": "PET_NNODES", "value": "9"}, {"name": "X", "value": "1"}]
    inner["resources"] = {"limits": {"cpu": "3", "memory": "1024Mi"}}
    inner["ports"] = [{"containerPort": 80}]
    merged = {key: value for key, value in {**stock, **spec}.items() if value is not None}
    return create_runtime(client, namespace, merged)


def test_variables_of_the_runtime(client, namespace):
    """Variables of a runtime are replaced in place, its CPUs count, and its first unnamed port is replaced."""
    own = create_customized_runtime(client, namespace)
    env = [{"name": "Y", "value": "3"}, {"name": "X", "value": "2"}]
    found = find_container(create_jobsets(client, namespace, {"job": train_job(trainer={"env": env}, **own)})["job"])
    assert list(read_environment(found).items()) == [
        *[("PET_NNODES", "1"), ("X", "2"), ("Y", "3"), ("PET_NPROC_PER_NODE", "3"), ("PET_NODE_RANK", RANK)],
        *[("PET_MASTER_ADDR", "job-node-0-0.job"), ("PET_MASTER_PORT", "29500")],
    ]
    assert found["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]


@pytest.mark.parametrize("policy", [{"numNodes": 2}, None])
def test_without_torch(client, namespace, target, policy):
    """Without torch in its runtime, a job gets no PET_ variables. Since 2.3 resourcesPerNode needs an mlPolicy."""
    own = create_customized_runtime(client, namespace, mlPolicy=policy)
    limits = {"limits": {"cpu": "1"}}
    jobs = {
        "plain": train_job(trainer={"env": [{"name": "X", "value": "2"}]}, **own),
        "sized": train_job(trainer={"numNodes": 3, "numProcPerNode": 2, "resourcesPerNode": limits}, **own),
    }
    jobsets = create_jobsets(client, namespace, jobs)
    assert list(read_environment(find_container(jobsets["plain"])).items()) == [("PET_NNODES", "9"), ("X", "2")]
    counts = [find_replicated_job(one)["template"]["spec"]["parallelism"] for one in jobsets.values()]
    assert counts == [2 if policy else 1, 3]
    if target.trainer >= (2, 3):
        limits = {"limits": {"cpu": "1" if policy else "3", "memory": "1Gi"}}
    assert find_container(jobsets["sized"])["resources"] == limits


def test_resources(client, namespace, target):
    """Since 2.3 resources of the TrainJob are merged into those of the runtime. Before, they replace them."""
    given = {
        "cpu": {"requests": {"cpu": "1"}},
        "memory": {"limits": {"memory": "1Gi"}},
        "gpu": {"limits": {"nvidia.com/gpu": "1"}},
        "nothing": {},
    }
    jobs = {name: train_job(runtime=LLAMA, trainer={"resourcesPerNode": value}) for name, value in given.items()}
    found = {name: find_container(one)["resources"] for name, one in create_jobsets(client, namespace, jobs).items()}
    gpu = {"nvidia.com/gpu": "2"}
    merged = {
        "cpu": {"requests": {"cpu": "1"}, "limits": gpu},
        "memory": {"limits": {"memory": "1Gi", **gpu}},
        "gpu": given["gpu"],
        "nothing": {"limits": gpu},
    }
    assert found == (merged if target.trainer >= (2, 3) else {**given, "nothing": {"limits": gpu}})


def test_quantities(client, namespace):
    """A TrainJob keeps its quantities as they were sent. Its JobSet has them in canonical form."""
    sent = {"cpu": "2000m", "memory": "0.5Gi", "ephemeral-storage": 1000, "example.org/x": "1e3", "example.org/y": "1"}
    trainer = {"resourcesPerNode": {"requests": sent, "limits": {"cpu": 2, "memory": "1024Mi"}}}
    found = find_container(create_jobsets(client, namespace, {"job": train_job(trainer=trainer)})["job"])["resources"]
    assert client.get("TrainJob", namespace, "job")["spec"]["trainer"] == trainer
    stored = {"cpu": "2", "memory": "512Mi", "ephemeral-storage": "1k", "example.org/x": "1e3", "example.org/y": "1"}
    assert found == {"requests": stored, "limits": {"cpu": "2", "memory": "1Gi"}}


def test_environment_of_the_processes(client, namespace):
    """Two nodes are two pods of one Job. Their processes have the ranks 0 and 1."""
    script = (
        "echo $PET_NODE_RANK of $PET_NNODES, $PET_NPROC_PER_NODE each, $JOB_COMPLETION_INDEX, port $PET_MASTER_PORT"
    )
    client.create(shell(script, trainer={"numNodes": 2, "numProcPerNode": 1}), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    pods = sorted(list_pods(client, namespace), key=lambda pod: pod["spec"]["hostname"])
    assert [pod["spec"]["hostname"] for pod in pods] == ["job-node-0-0", "job-node-0-1"]
    logs = [client.log(namespace, pod["metadata"]["name"]).strip() for pod in pods]
    port = logs[0].rpartition(" ")[2]  # here pods share this machine's network, so the kubelet changes the port
    assert logs == [f"0 of 2, 1 each, 0, port {port}", f"1 of 2, 1 each, 1, port {port}"]
    assert int(port) >= 29500

"""Tests of host names: they follow the name under which a TrainJob is created, wherever the v1 job had them."""

from __future__ import annotations

import re

import pytest

from tests.unit.migrate.test_mpi_jobs import mpi_job, pod_specs
from tests.unit.migrate.v1_jobs import pytorch_job, with_spec
from trainjob_migrate import Launch, convert

FINAL_NAME = "mnist-4f2a9c1b-2"
HOST = f"{FINAL_NAME}-node-0-1.{FINAL_NAME}"
OLD_HOST = "mnist-worker-0"
LABEL = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"


def expand(container):
    """Return the words and variables of a container of the TrainJob FINAL_NAME, expanded."""
    values = {}

    def replace_references(text):
        return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)

    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        if source is None:
            values[variable["name"]] = replace_references(variable.get("value", ""))
        elif source == {"fieldRef": {"fieldPath": LABEL}}:
            values[variable["name"]] = FINAL_NAME
    return [replace_references(word) for word in (*container.get("command", []), *container.get("args", []))], values


def containers_of(conversion):
    """Return `spec.trainer`, and the containers of the generated runtime by name."""
    found = {"trainer": conversion.train_job["spec"]["trainer"]}
    if conversion.runtime:
        for pod in pod_specs(conversion).values():
            found |= {one["name"]: one for one in (*pod.get("initContainers", []), *pod["containers"])}
    return found


def test_hosts_of_a_converted_job_follow_its_final_name():
    env = [{"name": "PEER", "value": f"tcp://{OLD_HOST}:1"}, {"name": "LIST", "value": "$(PEER),b"}]
    job = pytorch_job(command=["python", "t.py", f"--peer={OLD_HOST}"], args=[f"{OLD_HOST}.team.svc"], env=env)
    words, variables = expand(containers_of(convert(job))["trainer"])
    assert words == ["python", "t.py", f"--peer={HOST}", f"{HOST}.team.svc"]
    assert variables["PEER"] == f"tcp://{HOST}:1"
    assert variables["LIST"] == f"tcp://{HOST}:1,b"
    assert variables["MASTER_ADDR"] == f"{FINAL_NAME}-node-0-0.{FINAL_NAME}"


def test_hosts_in_sidecars_and_init_containers_follow_it():
    job = pytorch_job(
        command=["torchrun", "t.py"],
        pod={
            "initContainers": [
                {"name": "wait", "image": "b:1", "command": ["sh", "-c", f"until nslookup {OLD_HOST}; do :; done"]}
            ]
        },
    )
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        sidecar = {"name": "proxy", "image": "p:1", "env": [{"name": "PEER", "value": OLD_HOST}]}
        replica["template"]["spec"]["containers"].append(sidecar)
    containers = containers_of(convert(job))
    assert expand(containers["wait"])[0] == ["sh", "-c", f"until nslookup {HOST}; do :; done"]
    assert expand(containers["proxy"])[1]["PEER"] == HOST


@pytest.mark.parametrize("field", ["training", "initContainers"])
def test_secrets_that_are_called_like_a_host_keep_their_name(field):
    variable = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": OLD_HOST, "key": "k"}}}
    init = [{"name": "init", "image": "b:1", "env": [variable]}] if field == "initContainers" else []
    job = pytorch_job(command=["torchrun", "t.py"], env=[variable], pod={"initContainers": init})
    containers = containers_of(convert(job))
    assert variable in containers["init" if init else "trainer"]["env"]


def test_a_job_without_hosts_gets_no_variable_with_its_name():
    found = convert(pytorch_job(command=["torchrun", "t.py"]))
    assert [one["name"] for one in found.train_job["spec"]["trainer"]["env"]] == ["PYTHONUNBUFFERED"]


def test_the_rendezvous_and_torchruns_words_follow_it():
    policy = {"minReplicas": 2, "maxReplicas": 2, "rdzvHost": "mnist-worker-1"}
    job = with_spec(pytorch_job(master=False, workers=2, command=["torchrun", "t.py"]), elasticPolicy=policy)
    assert expand(containers_of(convert(job))["trainer"])[1]["PET_RDZV_ENDPOINT"] == f"{HOST}:29500"
    started = convert(pytorch_job(command=["python", "t.py", OLD_HOST]), launch=Launch.TORCHRUN)
    assert expand(containers_of(started)["trainer"])[0][-1] == HOST


def test_hosts_of_an_mpi_job_follow_it():
    found = convert(
        mpi_job(
            launcher={"command": ["mpirun", "-host", "weather-worker-1", "/weather"]},
            worker={"env": [{"name": "PEER", "value": "weather-worker-1"}]},
        )
    )
    assert expand(found.train_job["spec"]["trainer"])[0][2] == HOST
    (node,) = pod_specs(found)["node"]["containers"]
    assert expand(node)[1]["PEER"] == HOST


def test_a_variable_of_more_than_a_hundred_has_them_in_the_runtime():
    env = [{"name": f"V{number}", "value": OLD_HOST} for number in range(130)]
    containers = containers_of(convert(pytorch_job(command=["torchrun", "t.py"], env=env)))
    assert expand(containers["node"])[1]["V129"] == HOST


WITHOUT_EXPANSION = {
    "containers[0].lifecycle": {"lifecycle": {"preStop": {"exec": {"command": ["notify", OLD_HOST]}}}},
    "containers[0].readinessProbe": {"readinessProbe": {"tcpSocket": {"host": OLD_HOST, "port": 1}}},
    "containers[0].workingDir": {"workingDir": f"/logs/{OLD_HOST}"},
    "hostAliases": {"pod": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": [OLD_HOST]}]}},
    "volumes": {"pod": {"volumes": [{"name": "v", "nfs": {"server": OLD_HOST, "path": "/"}}]}},
    "initContainers[0].lifecycle": {
        "pod": {"initContainers": [{"name": "i", "image": "b:1", "lifecycle": {"postStart": {"exec": [OLD_HOST]}}}]}
    },
}


@pytest.mark.parametrize("where", WITHOUT_EXPANSION)
def test_a_host_where_kubernetes_expands_no_variables_is_refused(where):
    found = convert(pytorch_job(command=["torchrun", "t.py"], **WITHOUT_EXPANSION[where]))
    [blocker] = found.blockers
    assert blocker.path == f"spec.pytorchReplicaSpecs.Worker.template.spec.{where}"
    assert "put the host into a variable of env" in blocker.reason


def test_a_variable_of_the_job_with_the_same_name_is_refused():
    found = convert(pytorch_job(command=["python", "t.py"], env=[{"name": "JOBSET_NAME", "value": "x"}]))
    assert [record.path for record in found.blockers] == [
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[0]"
    ]


# -- the MPI Operator's headless Service, which has the name of the job ------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "new"),
    [
        ("MASTER_ADDR", "weather", "NAME"),
        ("MASTER_ADDR", "weather:12355", "NAME:12355"),
        ("RDZV_ENDPOINT", "tcp://weather:29500", "tcp://NAME:29500"),
        ("SCHEDULER_URL", "http://weather.team.svc.cluster.local/a", "http://NAME.team.svc.cluster.local/a"),
        ("DB_HOST", "weather-db", "weather-db"),
        ("DB_HOST", "weather.example.org", "weather.example.org"),
        ("DATA_URL", "s3://bucket/weather", "s3://bucket/weather"),
    ],
)
def test_the_own_service_in_a_variable_for_a_host_follows_the_name(name, value, new):
    for role in ("launcher", "worker"):
        found = convert(mpi_job(**{role: {"env": [{"name": name, "value": value}], "command": ["a"]}}))
        _, variables = expand(pod_specs(found)["node" if role == "worker" else role]["containers"][0])
        assert variables[name] == new.replace("NAME", FINAL_NAME)
        assert ("hosts" in {finding.topic for finding in found.findings}) is (value != new)


@pytest.mark.parametrize(
    "words",
    [
        ["mpirun", "--master_addr", "{0}", "a"],
        ["mpirun", "--rdzv-endpoint={0}:29500"],
        ["mpirun", "-x", "PEERS=tcp://{0}:1", "a"],
        ["sh", "-c", "export MASTER_ADDR='{0}' && mpirun a"],
        ["sh", "-c", "curl http://{0}.team.svc:80 && mpirun a"],
        ["sh", "-c", "ping {0}.team.svc.cluster.local; nc -z {0}:2222"],
    ],
)
def test_the_own_service_in_a_program_follows_the_name(words):
    found = convert(mpi_job(launcher={"command": [word.format("weather") for word in words]}))
    assert expand(found.train_job["spec"]["trainer"])[0] == [word.format(FINAL_NAME) for word in words]
    [finding] = [one for one in found.findings if one.topic == "hosts"]
    assert finding.what == "The job refers to the host weather."


@pytest.mark.parametrize(
    ("field", "value", "is_refused"),
    [
        ("lifecycle", {"preStop": {"exec": {"command": ["curl", "http://weather:8080/end"]}}}, True),
        ("readinessProbe", {"exec": {"command": ["nc", "-z", "weather:2222"]}}, True),
        ("image", "weather:2024", False),
        ("workingDir", "/data/weather", False),
    ],
)
def test_the_own_service_where_kubernetes_expands_no_variables_is_refused(field, value, is_refused):
    found = convert(mpi_job(worker={field: value}))
    assert [one.path.rpartition(".")[2] for one in found.blockers] == ([field] if is_refused else [])


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["mpirun", "weather", "--name", "weather", "/weather", "weather.py"]},
        {"command": ["sh", "-c", "pull weather:1 && pull acme/weather:2024 && cp s3://weather/data ."]},
        {"env": [{"name": "JOB", "value": "weather"}, {"name": "DATA_URL", "value": "s3://weather/data"}]},
        {"env": [{"name": "OUT", "value": "/data/weather"}, {"name": "MASTER_ADDR", "value": "weather-db"}]},
    ],
)
def test_the_name_of_a_program_or_file_is_no_host(container):
    assert "hosts" not in {finding.topic for finding in convert(mpi_job(launcher=container)).findings}


def test_the_own_name_is_no_host_of_other_kinds():
    job = pytorch_job(name="mnist", command=["torchrun", "t.py"], env=[{"name": "DATA_HOST", "value": "mnist"}])
    found = convert(job)
    assert "hosts" not in {finding.topic for finding in found.findings}
    assert {"name": "DATA_HOST", "value": "mnist"} in found.train_job["spec"]["trainer"]["env"]

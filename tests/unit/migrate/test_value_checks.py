"""Tests of values that the API server would refuse: only the wrong value is named, with its rule."""

from __future__ import annotations

import pytest

from tests.unit.migrate.expected_results import load_source
from tests.unit.migrate.test_mpi_jobs import mpi_job
from tests.unit.migrate.test_peer_jobs import xgboost_job
from tests.unit.migrate.test_v1_names import with_container
from tests.unit.migrate.v1_jobs import pytorch_job, with_spec
from trainjob_migrate import convert
from trainjob_migrate.field_records import get_value, iterate_leaves

CONTAINER = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"


def blockers(job):
    return {record.path: record.reason for record in convert(job).blockers}


def test_only_the_number_in_a_command_is_named():
    found = blockers(pytorch_job(command=["torchrun", "--nproc_per_node", 2, "t.py"]))
    assert found == {f"{CONTAINER}.command[2]": "it must be a string: put it in quotes"}
    assert list(blockers(pytorch_job(args=["t.py", True]))) == [f"{CONTAINER}.args[1]"]
    assert "a list of strings" in blockers(pytorch_job(command="python t.py"))[f"{CONTAINER}.command"]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_the_same_in_other_containers(field):
    index = 1 if field == "containers" else 0
    where = f"spec.pytorchReplicaSpecs.Worker.template.spec.{field}[{index}]"
    assert list(blockers(with_container(field, command=["sleep", 5]))) == [f"{where}.command[1]"]
    assert list(blockers(with_container(field, env=[{"name": "A", "value": 5}]))) == [f"{where}.env[0].value"]


def test_only_the_value_of_a_variable_is_named():
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": 2}]
    assert blockers(pytorch_job(env=env)) == {f"{CONTAINER}.env[1].value": "it must be a string: put it in quotes"}


@pytest.mark.parametrize("workers", [0, None])
def test_an_mpi_job_without_workers_is_refused_for_this_alone(workers):
    job = mpi_job(workers=workers, slotsPerWorker=2, runPolicy={"cleanPodPolicy": "None"}, sshAuthMountPath="/x")
    assert list(blockers(job)) == ["spec.mpiReplicaSpecs"]
    dropped = {record.path: record.reason for record in convert(job).fields if "not checked" in record.reason}
    assert dropped["spec.slotsPerWorker"] == "not checked, because spec.mpiReplicaSpecs is refused"


def test_jobs_without_replicas_are_refused_for_this_alone():
    no_master = xgboost_job()
    del no_master["spec"]["xgbReplicaSpecs"]["Master"]
    assert list(blockers(no_master)) == ["spec.xgbReplicaSpecs"]
    empty = with_spec(pytorch_job(), runPolicy={"suspend": True}, pytorchReplicaSpecs={"Chief": {"replicas": 1}})
    assert list(blockers(empty)) == ["spec.pytorchReplicaSpecs"]


@pytest.mark.parametrize("count", ["$NUM", "${NUM}", "{{ .Values.workers }}", "2", 0, -1, 1.5, True])
def test_a_wrong_number_of_replicas_is_refused_with_its_rule(count):
    for job, path in (
        (pytorch_job(), "spec.pytorchReplicaSpecs.Worker.replicas"),
        (mpi_job(), "spec.mpiReplicaSpecs.Worker.replicas"),
    ):
        job["spec"][path.split(".")[1]]["Worker"]["replicas"] = count
        if count == 0 and "mpi" in path:
            continue  # such a job has no workers
        [(where, reason)] = blockers(job).items()
        assert where == path
        assert reason.startswith("it must be a whole number, at least 1")
        assert ("seems to be a placeholder" in reason) == (str(count)[:1] in "${")


QUANTITIES = ["1", 1, 0.5, "500m", "16Gi", "1e3", ".5", "2.", "+1", "100k"]
WRONG_QUANTITIES = ["${X}", "$MEM", "{{ .Values.memory }}", "16GB", "one", "16 Gi", "", True, None, ["1"]]


@pytest.mark.parametrize("amount", QUANTITIES)
def test_quantities_are_accepted(amount):
    assert not blockers(pytorch_job(resources={"limits": {"hugepages-2Mi": amount}}))


@pytest.mark.parametrize("amount", WRONG_QUANTITIES)
@pytest.mark.parametrize("part", ["limits", "requests"])
def test_a_wrong_quantity_is_refused_with_its_rule(amount, part):
    [(path, reason)] = blockers(pytorch_job(resources={part: {"hugepages-2Mi": amount}})).items()
    assert path == f"{CONTAINER}.resources.{part}.hugepages-2Mi"
    assert reason.startswith("it must be a quantity, such as 500m, 2 or 16Gi")
    assert ("seems to be a placeholder" in reason) == (str(amount)[:1] in "${" and bool(amount))


def test_a_placeholder_in_a_field_of_another_type_is_named():
    found = blockers(pytorch_job(pod={"hostNetwork": "${HOST_NETWORK}"}))
    [reason] = found.values()
    assert reason.endswith("${HOST_NETWORK} seems to be a placeholder: replace it before the conversion")


PROCESS_COUNTS = [
    ["torchrun", "--nproc_per_node=2", "t.py"],
    ["torchrun", "--nproc-per-node", "2", "t.py"],
    ["torchrun", "--nproc_per_node", "$(GPUS)", "t.py"],
    ["torchrun", "--nproc=4", "t.py"],
    ["python", "-m", "torch.distributed.run", "--nproc_per_node=2", "t.py"],
    ["sh", "-c", "exec torchrun --nnodes 2 \\\n  --nproc_per_node='2' t.py"],
    ["sh", "-c", "torchrun --nproc_per_node=2 a.py && torchrun --nproc-per-node 2 b.py"],
]
NO_PROCESS_COUNTS = [
    ["torchrun", "t.py"],
    ["torchrun", "--nproc_per_node=auto", "t.py"],
    ["torchrun", "--nproc-per-node", "gpu", "t.py"],
    ["sh", "-c", "torchrun --nproc_per_node=2 a.py && torchrun b.py"],
]


def has_processes_finding(command):
    return "processes" in [finding.topic for finding in convert(pytorch_job(command=command)).findings]


@pytest.mark.parametrize("command", PROCESS_COUNTS)
def test_a_given_number_of_processes_has_no_finding(command):
    assert not has_processes_finding(command)


@pytest.mark.parametrize("command", NO_PROCESS_COUNTS)
def test_a_number_that_torchrun_chooses_has_a_finding(command):
    assert has_processes_finding(command)


def test_a_generated_name_has_a_finding():
    job = pytorch_job(command=["torchrun", "t.py"])
    job["metadata"] = {"generateName": "gen-"}
    found = convert(job)
    assert found.train_job["metadata"]["name"] == "gen"
    [finding] = [one for one in found.findings if one.topic == "name"]
    assert "generateName gen-" in finding.what
    assert "fixed name gen" in finding.done


def test_a_refused_job_has_the_readiness_refused_in_json():
    assert convert(mpi_job(workers=0)).to_dict()["readiness"] == "refused"
    assert convert(pytorch_job(command=["torchrun", "t.py"])).to_dict()["readiness"] == "simple"


NAMES = ["io_test", "Data", "-a", "a.b", "x" * 64, "${VOLUME}", "<name, please replace>"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_name_of_a_volume_is_refused_with_its_rule(name):
    pod = {"volumes": [{"name": name, "emptyDir": {}}]}
    [(path, reason)] = blockers(pytorch_job(command=["torchrun", "t.py"], pod=pod)).items()
    assert path == "spec.pytorchReplicaSpecs.Worker.template.spec.volumes[0].name"
    assert reason.startswith("it must have only lower case letters, digits and -")
    assert ("seems to be a placeholder" in reason) == (name[0] in "$<")


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_wrong_name_of_another_container_is_refused(field):
    found = blockers(with_container(field, name="my_helper"))
    assert [path.rpartition(".")[2] for path in found] == ["name"]


def test_a_volume_name_may_have_digits_at_both_ends():
    pod = {"volumes": [{"name": "0-data-1", "emptyDir": {}}]}
    assert not blockers(pytorch_job(command=["torchrun", "t.py"], pod=pod))


@pytest.mark.parametrize("name", ["a" * 16, "my_port", "-a", "a-", "a--b", "80", "Web"])
def test_a_wrong_name_of_a_port_is_refused_with_its_rule(name):
    [(path, reason)] = blockers(
        pytorch_job(command=["torchrun", "t.py"], ports=[{"name": name, "containerPort": 1}])
    ).items()
    assert path == f"{CONTAINER}.ports[0].name"
    assert reason.startswith("it must have at most 15 lower case letters, digits and -")


@pytest.mark.parametrize("name", ["a" * 15, "8-a", "http", "pytorchjob-port"])
def test_a_name_of_a_port_is_accepted(name):
    assert not blockers(pytorch_job(command=["torchrun", "t.py"], ports=[{"name": name, "containerPort": 1}]))


def resources(requests, limits=None):
    return pytorch_job(resources={"requests": requests, **({"limits": limits} if limits else {})})


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "vendor.example.com/nic", "hugepages-2Mi"])
def test_a_device_that_is_requested_without_a_limit_is_refused(name):
    found = blockers(resources({"cpu": 1, name: 1}, {"cpu": 2}))
    [(path, reason)] = found.items()
    assert path.startswith(f"{CONTAINER}.resources.requests")
    assert reason.startswith("the API server accepts it only with an equal limit")


UNEQUAL = [
    ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
    ({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    ({"rdma/hca": "1k"}, {"rdma/hca": 999}),
    ({"cpu": "1500m"}, {"cpu": 1}),
    ({"memory": "1Gi"}, {"memory": "1G"}),
    ({"memory": "2e9"}, {"memory": "1E9"}),
]
EQUAL = [
    ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": 1}),
    ({"rdma/hca": "1k"}, {"rdma/hca": 1000}),
    ({"cpu": "900m"}, {"cpu": 1}),
    ({"cpu": "0.5"}, {"cpu": "500m"}),
    ({"memory": "1G"}, {"memory": "1Gi"}),
    ({"memory": "1e9"}, {"memory": "1E"}),
    ({"cpu": 4, "kubernetes.io/batch-cpu": 4}, {"memory": "1Gi"}),
]


@pytest.mark.parametrize(("requests", "limits"), UNEQUAL)
def test_a_request_above_its_limit_is_refused(requests, limits):
    [(path, _)] = blockers(resources(requests, limits)).items()
    assert path.startswith(f"{CONTAINER}.resources.requests")


@pytest.mark.parametrize(("requests", "limits"), EQUAL)
def test_a_request_up_to_its_limit_is_accepted(requests, limits):
    assert not blockers(resources(requests, limits))


def placeholders(job):
    found = convert(job)
    assert not found.blockers
    return [finding.what for finding in found.findings if finding.topic == "placeholder"]


POD_PLACEHOLDERS = [
    ({"imagePullSecrets": [{"name": "$PULL_SECRET"}]}, "imagePullSecrets[0].name contains $PULL_SECRET"),
    ({"nodeSelector": {"pool": "{{ pool }}"}}, "nodeSelector.pool contains {{ pool }}"),
    (
        {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "<claim, please replace>"}}]},
        "volumes[0].persistentVolumeClaim.claimName contains <claim, please replace>",
    ),
    ({"serviceAccountName": "${ACCOUNT}"}, "serviceAccountName contains ${ACCOUNT}"),
    ({"initContainers": [{"name": "i", "image": "a:$TAG"}]}, "initContainers[0].image contains $TAG"),
]


@pytest.mark.parametrize(("pod", "expected"), POD_PLACEHOLDERS)
def test_a_placeholder_in_a_pod_has_a_finding(pod, expected):
    [found] = placeholders(pytorch_job(command=["torchrun", "t.py"], pod=pod))
    assert expected in found


def test_a_placeholder_in_an_image_or_a_reference_has_a_finding():
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "${SECRET}", "key": "key"}}}
    job = pytorch_job(command=["torchrun", "t.py"], image="example.com/${PROJECT}/a:1", env=[secret])
    job["metadata"] |= {"namespace": "$NAMESPACE", "labels": {"kueue.x-k8s.io/queue-name": "${QUEUE}"}}
    found = placeholders(job)
    texts = [what.rpartition(" contains ")[2].partition(",")[0] for what in found]
    assert texts == ["$NAMESPACE", "${QUEUE}", "${PROJECT}", "${SECRET}"]


def test_all_placeholders_of_a_value_are_named():
    [found] = placeholders(pytorch_job(command=["torchrun", "t.py"], image="${REGISTRY}${NAME}:$TAG"))
    assert found.endswith("contains ${REGISTRY}, ${NAME}, $TAG, which seem to be placeholders.")


def test_variables_of_a_program_are_no_placeholders():
    env = [{"name": "A", "value": "${B} $(C)"}]
    mounts = [{"name": "d", "mountPath": "/d", "subPathExpr": "$(A)"}]
    pod = {"volumes": [{"name": "d", "emptyDir": {}}]}
    command = ["sh", "-c", "torchrun ${SCRIPT} < $INPUT > out"]
    assert not placeholders(pytorch_job(command=command, env=env, volumeMounts=mounts, pod=pod))


@pytest.mark.parametrize("case", ["pytorch/half-a-cpu", "mpi/half-a-cpu"])
def test_quantities_are_written_as_text(case):
    """The API server refuses a number with a fraction in a field that is an integer or a string."""
    conversion = convert(load_source(case))
    written = {"runtime": conversion.runtime, "train_job": conversion.train_job}
    numbers = [leaf for leaf in iterate_leaves(written) if isinstance(get_value(written, leaf), float)]
    assert (numbers, conversion.blockers) == ([], ())


@pytest.mark.parametrize(("given", "text"), [(0.5, "0.5"), (1e-05, "0.00001"), (1.5e10, "15000000000"), (2, "2")])
def test_the_text_of_a_quantity_has_no_exponent(given, text):
    job = pytorch_job(resources={"limits": {"cpu": given}})
    assert convert(job).train_job["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"cpu": text}

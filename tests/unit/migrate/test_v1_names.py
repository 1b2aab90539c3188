"""Tests of programs that rely on names of the old operators: each pattern has a finding or a refusal."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.migrate.test_mpi_jobs import mpi_job
from tests.unit.migrate.v1_jobs import pytorch_job
from trainjob_migrate import convert

POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
INDEX = "${JOB_COMPLETION_INDEX}"
INDEX_AFTER_MASTER = "$((JOB_COMPLETION_INDEX > 0 ? JOB_COMPLETION_INDEX - 1 : 0))"
# Texts of programs that have the finding.
PATTERNS = [
    "echo $HOSTNAME",
    "echo ${HOSTNAME%-*}",
    "id=$(hostname)",
    "id=`/bin/hostname -s`",
    "hostname | cut -d- -f2",
    "--node_rank $(hostname | cut -d- -f9-)",
    "python -c 'import socket; socket.gethostname()'",
    "python -c 'import platform; platform.node()'",
    "python -c 'import os; os.environ[\"HOSTNAME\"]'",
    "cat /etc/hostname",
    "for i in 0 1; do ping mnist-worker-$i; done",
    "ping ${JOB}-master-0",
    "ping other-job-worker-3",
    "f'{name}-worker-{rank}'",
    "echo $MNIST_MASTER_0_SERVICE_HOST",
    "kubectl get pods -l training.kubeflow.org/job-name=mnist",
    "kubectl get pods -l pytorch-job-name=mnist",
    "train --dist-url=tcp://192.0.2.48:22222",
    "torchrun --master_addr 192.0.2.48 t.py",
    "torchrun --rdzv-endpoint='192.0.2.48:29400' t.py",
    "export MASTER_ADDR=192.0.2.48",
    "kubectl delete pytorchjob mnist",
    "curl $API/apis/kubeflow.org/v1/x",
    "TrainingClient().wait_for_job_conditions()",
    "torchrun --node_rank ${HOSTNAME##*-} t.py",
    "torchrun --node_rank $(hostname | awk -F- '{print $NF}') t.py",
    "cat /labels/pytorch-replica-index",
]
# Texts without a dependency, which must not have such a finding.
HARMLESS = [
    "python train.py",
    "--name=my-pytorchjob",
    "hostname -I",
    "--hostname=x",
    "nvidia.com/gpu",
    "worker-0",
    "kubernetes.io/hostname",
    "--master_addr=127.0.0.1",
    "torchrun --master-addr 0.0.0.0",
    "--store http://192.0.2.48:9000",
]


def script(text):
    return ["sh", "-c", text]


def probe(text):
    return {"exec": {"command": script(text)}}


# Functions that return a job with a text at a place.
PLACES = {
    "command": lambda text: pytorch_job(command=script(text)),
    "args": lambda text: pytorch_job(command=["sh"], args=["-c", text]),
    "env": lambda text: pytorch_job(command=["torchrun", "t.py"], env=[{"name": "A", "value": text}]),
    "lifecycle": lambda text: pytorch_job(command=["torchrun", "t.py"], lifecycle={"preStop": probe(text)}),
    "postStart": lambda text: pytorch_job(command=["torchrun", "t.py"], lifecycle={"postStart": probe(text)}),
    "livenessProbe": lambda text: pytorch_job(command=["torchrun", "t.py"], livenessProbe=probe(text)),
    "readinessProbe": lambda text: pytorch_job(command=["torchrun", "t.py"], readinessProbe=probe(text)),
    "startupProbe": lambda text: pytorch_job(command=["torchrun", "t.py"], startupProbe=probe(text)),
    "init container": lambda text: with_container("initContainers", command=script(text)),
    "env of an init container": lambda text: with_container("initContainers", env=[{"name": "A", "value": text}]),
    "sidecar": lambda text: with_container("containers", command=script(text)),
    "lifecycle of a sidecar": lambda text: with_container("containers", lifecycle={"preStop": probe(text)}),
}


def with_container(field, **container):
    job = pytorch_job(command=["torchrun", "t.py"])
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        spec = replica["template"]["spec"]
        spec[field] = [*spec.get(field, []), {"name": "other", "image": "x:1", **copy.deepcopy(container)}]
    return job


def topics(conversion):
    return {finding.topic for finding in conversion.findings}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", PATTERNS)
def test_each_pattern_has_a_finding_at_each_place(text, place):
    found = convert(PLACES[place](text))
    assert topics(found) & {"names", "hosts"} == {"names"}


@given(st.sampled_from(PATTERNS), st.sampled_from([*PLACES]), st.sampled_from(["", "cd /src && ", "x\n", "a; "]))
def test_a_pattern_within_a_script_has_its_finding(text, place, before):
    assert "names" in topics(convert(PLACES[place](f"{before}{text}\ntrue")))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", HARMLESS)
def test_a_program_that_does_not_rely_on_v1_has_no_such_finding(text, place):
    assert not topics(convert(PLACES[place](text))) & {"names", "hosts"}


@pytest.mark.parametrize("place", PLACES)
def test_a_host_is_converted_or_refused_at_each_place(place):
    found = convert(PLACES[place]("ping mnist-worker-0"))
    assert found.blockers or "ping $(JOBSET_NAME)-node-0-1.$(JOBSET_NAME)" in json.dumps(
        [found.train_job, found.runtime]
    )


@pytest.mark.parametrize(
    "job",
    [
        pytorch_job(command=["torchrun", "t.py"], env=[{"name": "DB_PASSWORD", "value": "s3cret-worker-0"}]),
        pytorch_job(command=["train", "--password", "s3cret-worker-0"]),
        pytorch_job(command=script("train --api-key=s3cret-worker-0 $HOSTNAME")),
        pytorch_job(command=script("curl https://me:s3cret-worker-0@example.com/kubeflow.org/v1")),
    ],
)
def test_findings_show_no_secrets(job):
    found = convert(job)
    assert "names" in topics(found)
    assert "s3cret" not in json.dumps(found.to_dict())


def find_names(job):
    [finding] = [one for one in convert(job).findings if one.topic == "names"]
    return finding


def test_all_names_of_a_template_have_one_finding():
    env = [POD_NAME, {"name": "MAIN_CONTAINER_NAME", "value": "pytorch"}, {"name": "FRAMEWORK", "value": "pytorch"}]
    finding = find_names(pytorch_job(command=script("kubectl get pytorchjobs\ntrain"), env=env))
    container = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"
    assert finding.what == (
        f"Names of v1 are used: {container}.command[2]: kubectl get pytorchjobs; "
        f"{container}.env[0].valueFrom.fieldRef.fieldPath (POD_NAME): metadata.name; "
        f"{container}.env[1].value (MAIN_CONTAINER_NAME): pytorch."
    )
    assert "$(JOBSET_NAME)-node-0-$(JOB_COMPLETION_INDEX).$(JOBSET_NAME)" in finding.done


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_the_pods_name_in_other_containers_is_reported(field):
    assert "names" in topics(convert(with_container(field, env=[POD_NAME])))


def test_the_pods_name_in_a_volume_is_reported():
    items = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
    pod = {"volumes": [{"name": "info", "downwardAPI": {"items": items}}]}
    assert "names" in topics(convert(pytorch_job(command=["torchrun", "t.py"], pod=pod)))


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_labels_of_the_operator_are_refused_in_other_containers(field):
    source = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    assert convert(with_container(field, env=[{"name": "INDEX", "valueFrom": source}])).blockers


def label_variable(label):
    return {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


@pytest.mark.parametrize("label", ["pytorch-replica-index", "volcano.sh/task-index"])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_variable_from_a_label_of_the_operator_is_reported(label, field):
    assert label in find_names(with_container(field, env=[label_variable(label)])).what


@pytest.mark.parametrize("label", ["team", "jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index"])
def test_a_variable_from_another_label_is_not_reported(label):
    job = pytorch_job(command=["torchrun", "t.py"], env=[label_variable(label)])
    assert "names" not in topics(convert(job))


FILES = ["/etc/mpi/discover_hosts.sh", "/etc/mpi/kubexec.sh", "/opt/kube/kubectl"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("replica", ["launcher", "worker"])
def test_files_of_the_mpi_operators_are_refused_in_each_container(file, replica):
    init = {"initContainers": [{"name": "wait", "image": "b:1", "command": ["sh", "-c", f"cat {file}"]}]}
    by_init = convert(mpi_job(**{f"{replica}_pod": init}))
    by_env = convert(mpi_job(**{replica: {"env": [{"name": "RSH", "value": file}], "command": ["run"]}}))
    for found in (by_init, by_env):
        assert [file in record.reason for record in found.blockers] == [True]


def test_the_launcher_may_read_its_hostfile():
    assert not convert(mpi_job(launcher={"command": ["mpirun", "--hostfile", "/etc/mpi/hostfile"]})).blockers


@pytest.mark.parametrize(
    ("replica", "volume"),
    [("launcher", "mpi-job-kubectl"), ("worker", "mpi-job-kubectl"), ("worker", "mpi-job-config")],
)
def test_mounts_of_the_operators_volumes_that_the_trainer_lacks_are_refused(replica, volume):
    mounts = [{"name": volume, "mountPath": "/x"}]
    init = {"initContainers": [{"name": "wait", "image": "b:1", "volumeMounts": mounts}]}
    [blocker] = convert(mpi_job(**{f"{replica}_pod": init})).blockers
    replicas = replica.capitalize()
    assert blocker.path == f"spec.mpiReplicaSpecs.{replicas}.template.spec.initContainers[0].volumeMounts[0]"
    assert f"the pod has no volume {volume}, or only the old operator adds it" in blocker.reason
    own = {"volumes": [{"name": volume, "emptyDir": {}}], **init}
    assert not convert(mpi_job(**{f"{replica}_pod": own})).blockers


def test_a_mount_without_a_volume_is_refused():
    [blocker] = convert(pytorch_job(volumeMounts=[{"name": "data", "mountPath": "/d"}])).blockers
    assert "the pod has no volume data" in blocker.reason


def test_hosts_of_older_mpi_operators_are_converted():
    words = ["mpirun", "-host", "weather-worker-0.weather-worker,weather-worker-1.weather-worker.ns.svc", "/weather"]
    found = convert(mpi_job(launcher={"command": words}))
    host = "$(JOBSET_NAME)-node-0-{}.$(JOBSET_NAME)"
    assert found.train_job["spec"]["trainer"]["command"][2] == f"{host.format(0)},{host.format(1)}.ns.svc"


@pytest.mark.parametrize("containers", [["a"], [1], {"a": 1}])
def test_init_containers_of_another_type_are_refused(containers):
    assert convert(pytorch_job(command=["torchrun", "t.py"], pod={"initContainers": containers})).blockers


@pytest.mark.parametrize("spec", [{}, {"containers": []}, {"containers": {}}, {"containers": ["a"]}])
def test_a_template_without_containers_is_refused_without_an_exception(spec):
    job = pytorch_job(command=["torchrun", "t.py"])
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"] = spec
    assert convert(job).blockers

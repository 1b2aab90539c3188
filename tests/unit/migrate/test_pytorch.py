"""Tests of PyTorchJobs: size, names, elastic jobs, and complete objects."""

from __future__ import annotations

import copy
import re

import pytest

from tests.unit.migrate.test_environment import find_finding, variables
from tests.unit.migrate.v1_jobs import ELASTIC, every_field, pytorch_job, with_spec
from trainjob import InvalidSpec
from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, Launch, Readiness, convert

TORCHRUN = ["torchrun", "train.py"]


def converted_trainer(job, **options):
    return convert(job, **options).train_job["spec"]["trainer"]


def record_at(conversion, path):
    return next(record for record in conversion.fields if record.path == path)


def test_a_simple_job_is_a_trainer_on_the_stock_runtime():
    job = pytorch_job(workers=2, command=TORCHRUN, args=["--lr", "1"], resources={"limits": {"nvidia.com/gpu": "1"}})
    found = convert(with_spec(job, nprocPerNode="1"))
    assert found.train_job == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mnist"},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "trainer": {
                "numNodes": 3,
                "numProcPerNode": 1,
                "image": "example.com/mnist:1",
                "command": TORCHRUN,
                "args": ["--lr", "1"],
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}},
                "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
            },
        },
    }
    assert (found.readiness, found.runtime, found.blockers) == (Readiness.SIMPLE, None, ())


def test_a_job_with_patches_is_standard():
    found = convert(pytorch_job(command=TORCHRUN, pod={"nodeSelector": {"pool": "gpu"}}))
    assert found.readiness is Readiness.STANDARD
    pod = {"spec": {"nodeSelector": {"pool": "gpu"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    assert found.train_job["spec"]["runtimePatches"] == [
        {"manager": "trainjob.dev/migrate", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    ]


def test_a_generated_runtime_has_all_settings_outside_the_trainer():
    found = convert(pytorch_job(command=TORCHRUN, workingDir="/src", pod={"nodeSelector": {"pool": "gpu"}}))
    assert found.readiness is Readiness.COMPLEX
    assert found.train_job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert "runtimePatches" not in found.train_job["spec"]
    (job,) = found.runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = {"spec": {"nodeSelector": {"pool": "gpu"}, "containers": [{"name": "node", "workingDir": "/src"}]}}
    assert job["template"] == {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod},
    }
    assert found.runtime["metadata"] == {"name": "mnist", "labels": {"trainer.kubeflow.org/framework": "torch"}}


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (pytorch_job(workers=0), 1),
        (pytorch_job(workers=3), 4),
        (pytorch_job(master=False, workers=3), 3),
    ],
)
def test_nodes_are_all_replicas(job, nodes):
    assert converted_trainer(job)["numNodes"] == nodes


def test_roles_may_be_written_in_any_case():
    job = pytorch_job(workers=2)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert converted_trainer(
        with_spec(job, pytorchReplicaSpecs={key.lower(): value for key, value in replicas.items()})
    ) == (converted_trainer(job))


@pytest.mark.parametrize(
    ("role", "count"), [("Master", 2), ("Worker", 0), ("Worker", "2"), ("Worker", -1), ("Worker", True)]
)
def test_an_invalid_number_of_replicas_is_refused(role, count):
    job = pytorch_job()
    job["spec"]["pytorchReplicaSpecs"][role]["replicas"] = count
    assert [record.path for record in convert(job).blockers] == [f"spec.pytorchReplicaSpecs.{role}.replicas"]


@pytest.mark.parametrize("specs", [{}, None, {"Chief": {"replicas": 1}}, "none"])
def test_a_job_without_replicas_is_refused(specs):
    job = with_spec(pytorch_job(), pytorchReplicaSpecs=specs, runPolicy={"suspend": True})
    assert any(record.path == "spec.pytorchReplicaSpecs" for record in convert(job).blockers)


PROCESSES = {
    ("4", Dialect.V2_2): 4,
    (4, Dialect.V2_2): 4,
    ("auto", Dialect.V2_2): None,
    ("gpu", Dialect.V2_2): None,
    (None, Dialect.V2_2): None,
    ("auto", Dialect.V2_1): "auto",
    ("cpu", Dialect.V2_0): "cpu",
}


@pytest.mark.parametrize(("given", "dialect"), PROCESSES)
def test_valid_numbers_of_processes(given, dialect):
    job = with_spec(pytorch_job(command=TORCHRUN), nprocPerNode=given)
    assert converted_trainer(job, dialect=dialect).get("numProcPerNode") == PROCESSES[given, dialect]


def test_invalid_numbers_of_processes_are_refused():
    with_gpu = pytorch_job(command=TORCHRUN, resources={"limits": {"nvidia.com/gpu": 1}})
    for job, given in ((with_gpu, "cpu"), (pytorch_job(), "many"), (pytorch_job(), 0), (pytorch_job(), 1.5)):
        assert [record.path for record in convert(with_spec(job, nprocPerNode=given)).blockers] == ["spec.nprocPerNode"]


def test_torchrun_without_gpus_has_a_finding_about_processes():
    assert find_finding(convert(pytorch_job(command=TORCHRUN)), "processes")
    assert not find_finding(convert(pytorch_job(command=["python", "t.py"])), "processes")
    assert not find_finding(convert(with_spec(pytorch_job(command=TORCHRUN), nprocPerNode="2")), "processes")


def test_an_elastic_job_gets_a_fixed_size_and_keeps_its_restarts():
    found = convert(with_spec(pytorch_job(master=False, workers=2, command=TORCHRUN), elasticPolicy=ELASTIC))
    assert found.readiness is Readiness.COMPLEX
    assert "from 1 to 4 nodes" in find_finding(found, "elastic").what
    assert found.train_job["spec"]["trainer"]["numNodes"] == 2
    assert variables(found) == {
        "PET_RDZV_BACKEND": {"value": "etcd"},
        "PET_RDZV_ENDPOINT": {"value": "etcd.example.com:2379"},
        "PET_RDZV_ID": {"value": "meeting"},
        "PET_RDZV_CONF": {"value": "join_timeout=345"},
        "PET_MAX_RESTARTS": {"value": "9"},
        "PYTHONUNBUFFERED": {"value": "1"},
    }
    assert record_at(found, "spec.elasticPolicy.maxReplicas").result is FieldResult.DROPPED
    assert find_finding(found, "elastic").done.startswith("It runs on 2 nodes; torchrun still restarts")
    policy = {"minReplicas": 1, "maxReplicas": 2}
    without_restarts = convert(with_spec(pytorch_job(master=False, workers=2), elasticPolicy=policy))
    assert find_finding(without_restarts, "elastic").done == "It runs on 2 nodes."


def test_equal_bounds_leave_an_autoscaler_no_choice():
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]
    policy = {"minReplicas": 2, "maxReplicas": 2, "metrics": metrics}
    job = pytorch_job(master=False, workers=2, command=TORCHRUN)
    found = convert(with_spec(job, elasticPolicy=policy))
    assert find_finding(found, "elastic") is None
    assert record_at(found, "spec.elasticPolicy.metrics").result is FieldResult.DROPPED
    del policy["maxReplicas"]
    assert find_finding(convert(with_spec(job, elasticPolicy=policy)), "elastic")


@pytest.mark.parametrize("master", [True, False])
def test_findings_of_an_invalid_number_of_replicas_have_no_number(master):
    job = pytorch_job(master=master, command=["python", "t.py"])
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "${WORKERS}"
    found = convert(with_spec(job, elasticPolicy={"minReplicas": 3, "maxReplicas": 8}))
    texts = " ".join(text for one in found.findings for text in (one.what, one.why, one.done))
    assert re.findall(r"[^ ]* \d+ (?:nodes|separate)|WORLD_SIZE is \d+", texts) == ["to 8 nodes"]


def test_an_elastic_job_of_fixed_size_has_its_rendezvous_on_rank_0():
    policy = {"minReplicas": 2, "maxReplicas": 2, "nProcPerNode": 3, "rdzvHost": "mnist-worker-0", "standalone": True}
    found = convert(with_spec(pytorch_job(master=False, workers=2, command=TORCHRUN), elasticPolicy=policy))
    assert find_finding(found, "elastic") is None
    assert found.train_job["spec"]["trainer"]["numProcPerNode"] == 3
    assert variables(found)["PET_RDZV_BACKEND"] == {"value": "c10d"}
    assert variables(found)["PET_RDZV_ENDPOINT"] == {"value": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME):29500"}
    assert variables(found)["PET_STANDALONE"] == {"value": "1"}


def test_metadata_is_copied_without_the_fields_of_the_server():
    found = convert(every_field())
    assert found.train_job["metadata"] == {
        "name": "every-field",
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "gpu-queue", "team": "language"},
        "annotations": {"note": "kept-note"},
    }
    assert found.runtime["metadata"]["namespace"] == "team-a"
    assert found.blockers == ()
    dropped = {record.path for record in found.fields if record.result is FieldResult.DROPPED}
    assert {"status", "metadata.uid", "metadata.ownerReferences", "metadata.finalizers"} <= dropped


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_metadata_of_other_controllers_has_a_finding(field):
    job = pytorch_job(command=["torchrun", "t.py"])
    keys = ["cloud.example.com/auto-resume", "cloud.example.com/retries", "kai.scheduler/queue"]
    harmless = ["team", "app.kubernetes.io/name", "kueue.x-k8s.io/queue-name", "argocd.argoproj.io/hook", "helm.sh/a"]
    job["metadata"][field] = dict.fromkeys([*keys, *harmless], "a")
    found = convert(job)
    assert found.train_job["metadata"][field] == dict.fromkeys([*keys, *harmless], "a")
    [finding] = [one for one in found.findings if one.topic == "metadata"]
    assert finding.what == f"The job has the {field} {', '.join(keys)}."


def test_a_long_name_is_shortened_and_stays_unique():
    names = [
        convert(pytorch_job(name=f"{'long-name-' * 5}{number}")).train_job["metadata"]["name"] for number in (1, 2)
    ]
    assert all(len(name) <= 44 and name.startswith("long-name-long") for name in names)
    assert len(set(names)) == 2
    longest = "a" * 44
    assert convert(pytorch_job(name=longest)).train_job["metadata"]["name"] == longest


def test_a_generated_name_is_fixed():
    job = pytorch_job(command=["python", "t.py"])
    job["metadata"] = {"generateName": "nightly-"}
    found = convert(job)
    assert found.train_job["metadata"] == {"name": "nightly"}
    assert variables(found)["MASTER_ADDR"] == {"value": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"}


@pytest.mark.parametrize("name", ["7up", "UPPER", "a.b"])
def test_an_invalid_name_of_a_trainjob_is_refused(name):
    assert [record.path for record in convert(pytorch_job(name=name)).blockers] == ["metadata.name"]


NO_JOBS = {
    "no mapping": [],
    "another kind": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}},
    "another group": {**pytorch_job(), "apiVersion": "example.com/v1"},
    "another group of a refused kind": {**pytorch_job(), "kind": "TFJob", "apiVersion": "example.com/v1"},
    "an older version": {**pytorch_job(), "apiVersion": "kubeflow.org/v1beta2"},
    "the version of another kind": {**pytorch_job(), "apiVersion": "kubeflow.org/v2beta1"},
    "no name": {**pytorch_job(), "metadata": {}},
    "no metadata": {**pytorch_job(), "metadata": None},
    "a name that is none": {**pytorch_job(), "metadata": {"name": 7}},
    "no JSON": {**pytorch_job(), "spec": {"a": object()}},
}


@pytest.mark.parametrize("name", NO_JOBS)
def test_other_documents_are_errors(name):
    with pytest.raises(InvalidSpec):
        convert(NO_JOBS[name])


@pytest.mark.parametrize("kind", ["PaddleJob", "MXJob"])
@pytest.mark.parametrize("version", ["v1", "v1alpha1", "v1beta2"])
def test_unsupported_kinds_are_refused_with_a_reason_in_every_version(kind, version):
    found = convert({**pytorch_job(), "kind": kind, "apiVersion": f"kubeflow.org/{version}"})
    assert found.train_job is None
    assert {record.path for record in found.blockers} == {"spec"}
    assert "the Trainer has no runtime" in found.blockers[0].reason


def test_former_policy_fields_are_dropped():
    found = convert(with_spec(pytorch_job(), cleanPodPolicy="None", backoffLimit=3))
    assert record_at(found, "spec.cleanPodPolicy").result is FieldResult.DROPPED
    assert found.runtime is None


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("dialect", Dialect)
def test_the_source_is_not_changed_and_results_are_equal(dialect, launch):
    job = every_field()
    before = copy.deepcopy(job)
    first, second = (convert(job, dialect=dialect, launch=launch) for _ in range(2))
    assert job == before
    assert first == second
    first.train_job["spec"]["trainer"]["env"].clear()
    assert second.train_job["spec"]["trainer"]["env"]


# -- labels and annotations that only name the role --------------------------------------------------------------------


def job_with_metadata(master, worker, **pod):
    job = pytorch_job(workers=3, command=["torchrun", "t.py"], pod=pod)
    for role, metadata in (("Master", master), ("Worker", worker)):
        job["spec"]["pytorchReplicaSpecs"][role]["template"]["metadata"] = metadata
    return job


def test_labels_of_the_role_are_those_of_the_worker():
    master = {
        "labels": {"app": "llm", "role": "master", "training.kubeflow.org/x": "a"},
        "annotations": {"prometheus.io/scrape": "true"},
    }
    found = convert(job_with_metadata(master, {"labels": {"app": "llm", "role": "worker", "app.kubernetes.io/x": "y"}}))
    assert found.blockers == ()
    [patch] = found.train_job["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["metadata"] == {
        "labels": {"app": "llm", "role": "worker", "app.kubernetes.io/x": "y"}
    }
    [finding] = [one for one in found.findings if one.topic == "labels"]
    assert "role, app.kubernetes.io/x, prometheus.io/scrape" in finding.what
    dropped = {record.path for record in found.fields if record.result is FieldResult.DROPPED}
    where = "spec.pytorchReplicaSpecs.Master.template.metadata"
    assert {f"{where}.labels.role", f'{where}.annotations["prometheus.io/scrape"]'} <= dropped


@pytest.mark.parametrize(
    ("metadata", "pod"),
    [
        ({"labels": {"role": "master"}}, {"affinity": {"podAffinity": {"matchLabels": {"role": "master"}}}}),
        ({"labels": {"role": "m"}}, {"topologySpreadConstraints": [{"matchLabelKeys": ["role"]}]}),
        (
            {"labels": {"role": "m"}},
            {"volumes": [{"name": "a", "downwardAPI": {"items": [{"fieldPath": "metadata.labels['role']"}]}}]},
        ),
        ({"annotations": {"k8s.v1.cni.cncf.io/networks": "vf"}}, {}),
        ({"annotations": {"sidecar.istio.io/inject": "false"}}, {}),
        ({"labels": {"sidecar.istio.io/inject": "false"}}, {}),
        ({"annotations": {"kubernetes.io/egress-bandwidth": "1M"}}, {}),
    ],
)
def test_labels_that_something_reads_are_refused(metadata, pod):
    found = convert(job_with_metadata(metadata, {}, **pod))
    [blocker] = found.blockers
    assert blocker.path.startswith("spec.pytorchReplicaSpecs.Master.template.metadata.")
    assert "equal in both" in blocker.reason


def test_an_init_container_of_one_role_gets_the_advice_to_test_the_rank():
    job = pytorch_job(command=["torchrun", "t.py"])
    spec = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec["initContainers"] = [{"name": "clean", "image": "b:1", "command": ["sh", "-c", "rm -rf /outputs/*"]}]
    [blocker] = convert(job).blockers
    assert "the Worker has none" in blocker.reason
    assert "test JOB_COMPLETION_INDEX in it, which is 0 on the first node" in blocker.reason

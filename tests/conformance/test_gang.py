"""Gang scheduling: the PodGroups that the Trainer creates for the runtimes of manifests/runtimes."""

from __future__ import annotations

import pytest
import yaml

from tests.conformance.backends import ROOT
from tests.conformance.runtimes import create_runtime, replicated_job
from tests.support.pod_groups import CRDS, GROUPS, group_path, install_crd
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, train_job
from trainjob import (
    CustomTrainerContainer,
    HuggingFaceDatasetInitializer,
    Initializer,
    RunKey,
    Runtime,
    TrainJob,
)
from trainjob.errors import InvalidSpec, NeverStarted
from trainjob.lifecycle import submit, wait

pytestmark = [pytest.mark.since("2.3"), pytest.mark.only("controlplane")]


def create_shipped_runtime(client, namespace, name, *steps):
    spec = yaml.safe_load((ROOT / "manifests" / "runtimes" / f"torch-{name}.yaml").read_text())["spec"]
    spec["template"]["spec"]["replicatedJobs"][:0] = steps
    return create_runtime(client, namespace, spec, f"torch-{name}")


def create_gang(client, namespace, name, reference):
    """Create a job on two nodes; return its PodGroup's spec and the marks of a pod."""
    client.create(train_job("true", trainer={"numNodes": 2}, name=name, **reference), namespace)
    path = group_path(name, namespace, name)
    created = wait_until(lambda: (response := client.request("GET", path)).ok and response.body, 300)
    pod = client.wait_for("Pod", namespace, "", bool, labelSelector=f"jobset.sigs.k8s.io/jobset-name={name}")
    return created["spec"], {**pod["metadata"]["labels"], **pod["metadata"].get("annotations", {})}


def job_on_runtime(runtime, **more):
    """Return a request for a job of two nodes on this runtime."""
    trainer = CustomTrainerContainer(image=IMAGE, command=["true"], num_nodes=2)
    return TrainJob(trainer=trainer, runtime=Runtime(name=runtime, kind="TrainingRuntime"), **more)


def test_volcano(client, cluster, namespace, unique, evidence):
    """If Volcano's CRD is missing, the wait ends with NeverStarted. With the CRD, a job has one PodGroup in a queue."""
    reference = create_shipped_runtime(client, namespace, "volcano")
    group, _ = GROUPS["volcano"]
    if client.request("GET", f"{CRDS}/podgroups.{group}").code == 404:
        job = submit(cluster, job_on_runtime("torch-volcano"), RunKey("conformance", "gang", unique, "run-1"))
        with pytest.raises(NeverStarted, match=f"PodGroup.*{group}(.|\n)*install the gang scheduler"):
            wait(cluster, job).raise_for_failure()
        install_crd(client, "volcano")
    spec, marks = create_gang(client, namespace, "volcano", reference)
    assert (spec["minMember"], spec["queue"]) == (2, "default")
    assert marks["scheduling.k8s.io/group-name"] == "volcano"
    evidence("features", row="gang scheduling", cell="control plane")


def test_coscheduling(client, cluster, namespace, unique, evidence):
    """A PodGroup includes initializers, but training starts after they end. So the request is rejected first."""
    install_crd(client, "coscheduling")
    dataset = replicated_job("dataset-initializer")
    pod = dataset["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "initializer", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]
    spec, marks = create_gang(
        client, namespace, "coscheduling", create_shipped_runtime(client, namespace, "coscheduling", dataset)
    )
    assert (spec["minMember"], spec["scheduleTimeoutSeconds"]) == (3, 120)  # but never more than two of the three run
    assert marks["scheduling.x-k8s.io/pod-group"] == "coscheduling"
    initializer = Initializer(dataset=HuggingFaceDatasetInitializer(storage_uri="hf://acme/tickets"))
    with pytest.raises(
        InvalidSpec, match=r"its gang \(coscheduling\) starts .* together, but dataset-initializer must end before"
    ):
        submit(
            cluster,
            job_on_runtime("torch-coscheduling", initializer=initializer),
            RunKey("conformance", "gang", unique, "run-2"),
        )
    evidence("features", row="gang scheduling", cell="control plane")


def test_kai(client, namespace):
    """Pods of a KAI runtime have its queue and its scheduler. The Trainer creates no PodGroup."""
    client.create(train_job("true", **create_shipped_runtime(client, namespace, "kai")), namespace)
    pod = client.wait_for("Pod", namespace, "", bool)
    assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "default-queue"
    assert pod["spec"]["schedulerName"] == "kai-scheduler"

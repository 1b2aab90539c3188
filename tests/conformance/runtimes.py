"""Namespaced runtimes of a test's own: steps that run scripts, so that no stock image is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.kubernetes_client import Client, Object, path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, train_job

OWN_RUNTIME = {"runtime": "own", "kind": "TrainingRuntime"}
"""How a TrainJob refers to the runtime that `own_runtime` makes."""

_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated_job(
    name: str = "node",
    script: str = "true",
    *,
    depends_on: Sequence[str] = (),
    restart_policy: str = "",
    **job_spec: Any,
) -> Object:
    """A replicated job whose container has the same name, as the Trainer wants it.

    Args:
        name: `node`, `dataset-initializer` or `model-initializer`.
        script: what it runs; a TrainJob's own command replaces the node's.
        needs: steps that have to be complete before.
        restart: restartPolicy of the pods; empty for the JobSet's default.
        job_spec: further fields of the Job's spec, such as `backoffLimit`.
    """
    pod: Object = {"containers": [{"name": name, "image": IMAGE, "command": ["sh", "-c", script]}]}
    if restart_policy:
        pod["restartPolicy"] = restart_policy
    job: Object = {
        "name": name,
        "template": {
            "metadata": {"labels": {_STEP_LABEL: "trainer" if name == "node" else name}},
            "spec": {**job_spec, "template": {"spec": pod}},
        },
    }
    if depends_on:
        job["dependsOn"] = [{"name": other, "status": "Complete"} for other in depends_on]
    return job


def never_restarted_job(name: str = "node", script: str = "true", **job_spec: Any) -> Object:
    """A step whose first failure is its last, and whose pod stays."""
    return replicated_job(name, script, restart_policy="Never", **{"backoffLimit": 0, **job_spec})


def create_own_runtime(client: Client, namespace: str, *jobs: Object, **jobset_spec: Any) -> Object:
    """Creates the runtime `own`; returns how a TrainJob refers to it, as `train_job` takes it."""
    template = {"spec": {**jobset_spec, "replicatedJobs": list(jobs)}}
    return create_runtime(client, namespace, {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template})


def create_runtime(client: Client, namespace: str, spec: Object, name: str = OWN_RUNTIME["runtime"]) -> Object:
    """Creates a runtime and waits until the Trainer knows it; returns how a TrainJob refers to it.

    The Trainer's webhook looks runtimes up in a cache, which hears of a new one a moment later.
    """
    item = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": spec,
    }
    client.create(item, namespace)
    reference: Object = {**OWN_RUNTIME, "runtime": name}

    def known() -> bool:
        answer = client.request("POST", path_of("TrainJob", namespace), train_job(**reference), dryRun="All")
        return "must be created before the TrainJob" not in answer.message

    wait_until(known)
    return reference

"""TrainingRuntimes of a test, whose steps run scripts and so need no stock image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.kubernetes_client import Client, Object, path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, train_job

OWN_RUNTIME = {"runtime": "own", "kind": "TrainingRuntime"}
"""The reference of a TrainJob to the runtime that `create_own_runtime` creates."""

_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated_job(
    name: str = "node",
    script: str = "true",
    *,
    depends_on: Sequence[str] = (),
    restart_policy: str = "",
    **job_spec: Any,
) -> Object:
    """Return a replicated job whose container has the same name, as the Trainer requires it.

    Args:
        name: `node`, `dataset-initializer` or `model-initializer`.
        script: the script of the container; a TrainJob's own command replaces that of `node`.
        depends_on: replicated jobs that have to be complete before it starts.
        restart_policy: restartPolicy of the pods; empty for the JobSet's default.
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
    """Return a replicated job that fails with its first pod, which is kept."""
    return replicated_job(name, script, restart_policy="Never", **{"backoffLimit": 0, **job_spec})


def create_own_runtime(client: Client, namespace: str, *jobs: Object, **jobset_spec: Any) -> Object:
    """Create the runtime `own`, and return a TrainJob's reference to it.

    The reference has the arguments of `train_job`.
    """
    template = {"spec": {**jobset_spec, "replicatedJobs": list(jobs)}}
    return create_runtime(client, namespace, {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template})


def create_runtime(client: Client, namespace: str, spec: Object, name: str = OWN_RUNTIME["runtime"]) -> Object:
    """Create a runtime that the Trainer knows, and return a reference to it.

    The Trainer's webhook looks runtimes up in a cache, which receives a new one a moment later.
    """
    item = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": spec,
    }
    client.create(item, namespace)
    reference: Object = {**OWN_RUNTIME, "runtime": name}

    def is_known() -> bool:
        response = client.request("POST", path_of("TrainJob", namespace), train_job(**reference), dryRun="All")
        return "must be created before the TrainJob" not in response.message

    wait_until(is_known)
    return reference

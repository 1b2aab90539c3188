"""A run of a pipeline on the back end, with the objects and texts that it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kfp_backend.backend import KfpBackend
from tests.support.polling import wait_until

__all__ = ["PipelineRun", "start_run", "stored_size"]

SECONDS = 240.0
ENDED = ("Succeeded", "Failed", "Error")
RUN_ENDED = ("SUCCEEDED", "FAILED", "CANCELED")

Object = dict[str, Any]


@dataclass(frozen=True)
class PipelineRun:
    """A run, found by its ID."""

    backend: KfpBackend
    kfp: Any
    run_id: str

    @property
    def workflow(self) -> Object:
        """The run's Workflow, which exists as soon as the API server has accepted the run."""
        [found] = self.backend.cluster.list("Workflow", self.backend.namespace, labelSelector=self._label)
        return found

    def wait_until_ended(self, seconds: float = SECONDS) -> Object:
        """Wait until Workflow and run have ended, and return the Workflow."""

        def ended(workflow: Object) -> bool:
            return workflow.get("status", {}).get("phase") in ENDED

        found = self._wait_for("Workflow", ended, seconds, self._label)
        wait_until(lambda: self.state in RUN_ENDED, seconds)
        return found

    def wait_until_succeeded(self, seconds: float = SECONDS) -> Object:
        """Wait until Workflow and run have succeeded, and return the Workflow."""
        workflow = self.wait_until_ended(seconds)
        logs = [self.read_log(pod)[-3000:] for pod in self.list_pods("system-container-impl")]
        assert workflow["status"]["phase"] == "Succeeded", "\n".join(logs)
        return workflow

    @property
    def state(self) -> str:
        """The run's state in Kubeflow Pipelines."""
        return str(self.kfp.get_run(self.run_id).state)

    def wait_for_trainjob(self, condition: Callable[[Object], Any]) -> Object:
        """Wait until a TrainJob of this run fulfills the condition, and return it."""
        return self._wait_for("TrainJob", condition, SECONDS, f"trainjob.dev/run={self.run_id}")

    def list_trainjobs(self) -> list[Object]:
        """Return the TrainJobs of this run."""
        label = f"trainjob.dev/run={self.run_id}"
        return self.backend.cluster.list("TrainJob", self.backend.namespace, labelSelector=label)

    def list_pods(self, template: str) -> list[Object]:
        """Return the pods of a template, such as `system-container-impl`, oldest first."""
        found = self.backend.cluster.list("Pod", self.backend.namespace, labelSelector=self._label)
        chosen = [pod for pod in found if f"-{template}-" in pod["metadata"]["name"]]
        return sorted(chosen, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def list_training_pods(self) -> list[Object]:
        """Return the pods of this run's TrainJobs."""
        names = {job["metadata"]["name"] for job in self.list_trainjobs()}
        pods = self.backend.cluster.list("Pod", self.backend.namespace)
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/jobset-name") in names]

    def read_log(self, pod: Object) -> str:
        """Return the output of a step's container `main`, which contains that of KFP's launcher."""
        return self.backend.cluster.log(self.backend.namespace, pod["metadata"]["name"], container="main")

    def read_step_logs(self) -> str:
        """Return the output of all steps, oldest first."""
        return "\n".join(self.read_log(pod) for pod in self.list_pods("system-container-impl"))

    def stored_objects(self) -> dict[str, bytes]:
        """Return the artifacts of this run in the object store, by their path below the run."""
        marker = f"/{self.run_id}/"
        objects = self.backend.store.objects.items()
        return {key.partition(marker)[2]: stored.data for key, stored in objects if marker in key}

    @property
    def _label(self) -> str:
        return f"pipeline/runid={self.run_id}"

    def _wait_for(self, kind: str, condition: Callable[[Object], Any], seconds: float, label: str) -> Object:
        namespace = self.backend.namespace
        return self.backend.cluster.wait_for(kind, namespace, "", condition, seconds=seconds, labelSelector=label)


def start_run(
    backend: KfpBackend,
    kfp: Any,
    package: Path,
    arguments: Mapping[str, Any] | None = None,
    *,
    cache: bool | None = False,
) -> PipelineRun:
    """Start a run of a compiled pipeline and return it.

    `cache` is the client's `enable_caching`: None for the options of the pipeline's tasks.
    """
    created = kfp.create_run_from_pipeline_package(str(package), arguments=dict(arguments or {}), enable_caching=cache)
    return PipelineRun(backend, kfp, created.run_id)


def stored_size(obj: Object) -> tuple[int, int]:
    """Return the bytes of an object as JSON: complete, and without managedFields."""
    plain = {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
    complete, without_fields = (json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in (obj, plain))
    return len(complete.encode()), len(without_fields.encode())

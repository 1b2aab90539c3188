"""Pods on a laptop cluster that run a compiled component as Kubeflow Pipelines does.

The pod has the labels, annotations and owner of KFP 2.17 and Argo 4.0. Its processes are emissary, KFP's launcher,
shell and executor, each the child of the one before. They run the component's own command with the executor input that
KFP's driver fills in (backend/src/v2/driver, backend/src/v2/compiler/argocompiler/container.go).
"""

from __future__ import annotations

import json
import queue
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trainjob.client import Cluster, EventHandler, ObjectEvent

LATENCIES = (0.005, 0.05, 0.15, 0.4)  # seconds
CONCURRENT_PODS = 5
ONE_SECOND_JOB = {"image": "busybox", "command": ["sleep"], "args": ["1"]}
HERE = Path(__file__).resolve().parent
_PODS = "/api/v1/namespaces/default/pods"
_CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_RUN = "pipeline/runid"
_WORKFLOW = "workflows.argoproj.io/workflow"


class CompiledComponent:
    """A compiled component, as its YAML describes it."""

    def __init__(self, component: CompiledComponent, folder: Path) -> None:
        from kfp import compiler

        path = str(folder / "component.yaml")
        compiler.Compiler().compile(component, path)
        compiled = yaml.safe_load(Path(path).read_text())
        [executor] = compiled["deploymentSpec"]["executors"].values()
        [definition] = compiled["components"].values()
        self.command, self.args = executor["container"]["command"], executor["container"]["args"]
        self._inputs = definition["inputDefinitions"]["parameters"]
        self._outputs = definition.get("outputDefinitions", {})

    def executor_input(self, folder: Path, **arguments: Any) -> str:
        """Return an executor input with all parameters, given or default, and all output paths."""
        defaults = {name: one["defaultValue"] for name, one in self._inputs.items() if "defaultValue" in one}
        settings: dict[str, Any] = {
            name: {} for name, one in self._inputs.items() if one["parameterType"] == "TASK_CONFIG"
        }
        outputs = {name: {"outputFile": f"{folder}/outputs/{name}"} for name in self._outputs.get("parameters", ())}
        artifacts = {
            name: {
                "artifacts": [
                    {
                        "name": name,
                        "type": one["artifactType"],
                        "uri": f"{folder}/artifacts/{name}",
                        "metadata": {},
                    }
                ]
            }
            for name, one in self._outputs.get("artifacts", {}).items()
        }
        inputs_spec = {"parameterValues": {**settings, **defaults, **arguments}}
        outputs_spec = {"parameters": outputs, "artifacts": artifacts, "outputFile": f"{folder}/executor_output.json"}
        return json.dumps({"inputs": inputs_spec, "outputs": outputs_spec})

    def command_line(self, folder: Path, **arguments: Any) -> list[str]:
        """Return the component's command line."""
        given = self.executor_input(folder, **arguments)
        return [*self.command, *(given if word == "{{$}}" else word for word in self.args)]


@dataclass
class PipelineRun:
    """One run of a pipeline, for tests of one of its tasks.

    Attributes:
        id: KFP's ID of the run.
        workflow: name of its Workflow.
        owner: ownerReference to that Workflow.
    """

    owner: dict[str, Any]
    workflow: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


class StartedPod:
    """A pod that a test has started.

    Attributes:
        name: the pod's name.
        folder: the folder for the executor's output.
    """

    def __init__(
        self, name: str, folder: Path, events: queue.SimpleQueue[ObjectEvent], event_handler: EventHandler
    ) -> None:
        self.name, self.folder = name, folder
        self._events, self._event_handler = events, event_handler
        self._pod: Mapping[str, Any] | None = None

    def _wait_for(self, condition: Callable[[Mapping[str, Any]], object], seconds: float) -> Mapping[str, Any] | None:
        """Wait until `condition` is true for the pod, and return the pod; None if it is deleted.

        The events come from a watch. `seconds` limits the wait for each event.
        """
        while self._pod is None or not condition(self._pod):
            event = self._events.get(timeout=seconds)
            assert event.error is None, event.error
            self._pod = event.object
            if event.deleted:
                return None
        return self._pod

    def wait_for_process(self) -> int:
        """Wait for the container's first process, and return its ID."""
        pod = self._wait_for(lambda pod: _container_status(pod).get("containerID"), 300)
        assert pod is not None, f"{self.name} is gone"
        return int(_container_status(pod)["containerID"].removeprefix("process://"))

    def wait_for_end(self) -> str | None:
        """Wait for the pod's end and return its phase; None if the pod is deleted."""
        pod = self._wait_for(lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), 300)
        self._event_handler.close()
        return str(pod["status"]["phase"]) if pod else None

    def executor_output(self) -> dict[str, Any]:
        """Return the output that the executor has written for KFP's launcher."""
        loaded: dict[str, Any] = json.loads((self.folder / "executor_output.json").read_text())
        return loaded


class Pods:
    """Runs, the pods of their task, and the logs of these pods."""

    def __init__(self, cluster: Cluster, component: CompiledComponent, folder: Path) -> None:
        self._cluster, self._component, self._folder = cluster, component, folder
        self._informer = cluster.labelled_pod_informer("default", _RUN)

    def new_run(self) -> PipelineRun:
        """Create a run.

        A ConfigMap stands for its Workflow, because the laptop cluster has no Workflows.
        """
        workflow = f"tickets-{uuid.uuid4().hex[:5]}"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": workflow}}
        made = self._request("POST", _CONFIGMAPS, body)
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": workflow, "controller": True}
        return PipelineRun({**owner, "uid": made["metadata"]["uid"], "blockOwnerDeletion": True}, workflow)

    def start(
        self,
        run: PipelineRun,
        kubeconfig: Path,
        attempt: int = 0,
        name: str = "",
        variables: dict[str, str] | None = None,
        **arguments: Any,
    ) -> StartedPod:
        """Start the pod of one try.

        `attempt` is Argo's number of the try, `variables` are environment variables for its processes.
        """
        name = name or f"{run.workflow}-system-container-impl-{uuid.uuid4().hex[:10]}"
        folder = self._folder / f"{name}-{uuid.uuid4().hex[:4]}"
        folder.mkdir()
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": {_WORKFLOW: run.workflow, _RUN: run.id, "pipelines.kubeflow.org/v2_component": "true"},
            "annotations": {"workflows.argoproj.io/node-name": f"{run.workflow}.root.train.executor({attempt})"},
            "ownerReferences": [run.owner],
        }
        python = [sys.executable, "-I", "-S"]
        above = [*python, str(HERE / "emissary.py"), *python, str(HERE / "kfp_launcher.py")]
        own: dict[str, Any] = {
            key: {"valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _OWN_FIELDS.items()
        }
        given = {"KUBECONFIG": str(kubeconfig), **(variables or {})}
        environment = {**own, **{key: {"value": value} for key, value in given.items()}}
        container = {
            "name": "main",
            "image": "python:3.12",
            "command": [*above, *self._component.command_line(folder, **arguments)],
            "env": [{"name": key, **value} for key, value in environment.items()],
        }
        events: queue.SimpleQueue[ObjectEvent] = queue.SimpleQueue()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        made = self._request("POST", _PODS, {**pod, "spec": {"restartPolicy": "Never", "containers": [container]}})
        uid = made["metadata"]["uid"]
        event_handler = self._informer.add_event_handler(
            name, lambda event: events.put(event) if _is_about(event, uid) else None
        )
        return StartedPod(name, folder, events, event_handler)

    def force_delete(self, pod: StartedPod) -> None:
        """Delete the pod object without a grace period, as happens when its node is lost."""
        self._request("DELETE", f"{_PODS}/{pod.name}", {"gracePeriodSeconds": 0})

    def mark_disrupted(self, pod: StartedPod) -> None:
        """Add the condition DisruptionTarget to the pod, the first step of an eviction."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self._request("PATCH", f"{_PODS}/{pod.name}/status", {"status": {"conditions": [condition]}})

    def delete(self, pod: StartedPod) -> None:
        """Delete the pod, the second step of an eviction.

        Its containers get SIGTERM and their grace period.
        """
        self._request("DELETE", f"{_PODS}/{pod.name}", {})

    def read_log(self, pod: StartedPod) -> str:
        """Return the log of the pod's processes."""
        with self._cluster.open_log(pod.name, "default", "main") as log:
            return str(log.read().decode())

    def _request(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._cluster._http.request(method, path, doing=f"{method} {path}", body=body)


_OWN_FIELDS = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid"}


def _container_status(pod: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (pod["status"].get("containerStatuses") or [{}])[0]
    return found


def _is_about(event: ObjectEvent, uid: str) -> bool:
    return event.object is None or event.object["metadata"]["uid"] == uid

"""Workflows as Kubeflow Pipelines 2.17 compiles a pipeline, and the settings of Argo that its manifests contain.

Source: backend/src/v2/compiler/argocompiler.

The drivers and the launcher are stand-ins, because the real ones need KFP's own server. Everything else is the same:
the nested DAGs and their names, a driver's pod before each task, the pods with KFP's init container, variables, labels
and volumes.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = ROOT / ".venv" / "kfp"
"""The environment that replaces the component's image."""

OUTPUTS_CLAIM = "shared"
"""The claim for the executors' outputs; see `tests/support/kfp_launcher.py`."""

WORKFLOW_DEFAULTS = """
spec:
  ttlStrategy:
    secondsAfterCompletion: 3600
    secondsAfterSuccess: 3600
    secondsAfterFailure: 3600
  templateDefaults:
    retryStrategy:
      limit: '2'
      retryPolicy: OnError
"""
"""Settings of KFP 2.17's manifests (third-party/argo/base/workflow-controller-configmap-patch.yaml)."""

_SUPPORT = ROOT / "tests" / "support"
_DRIVER, _LAUNCHER, _LAUNCH = _SUPPORT / "kfp_driver.py", _SUPPORT / "kfp_launcher.py", "/kfp-launcher/launch"
_COMPILE_SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import trainjob_kfp
from tests.support.kfp_pods import CompiledComponent
calls, folder = json.load(sys.stdin), pathlib.Path(sys.argv[2])
components = {name: CompiledComponent(getattr(trainjob_kfp, name), folder) for name, _ in calls}
print(json.dumps([
    {
        "container": {"command": components[name].command, "args": components[name].args},
        "executor_input": components[name].executor_input("/minio", **arguments),
    }
    for name, arguments in calls
]))
"""


@dataclass(frozen=True)
class Call:
    """A compiled component with arguments.

    Attributes:
        container: the component's command and arguments, with the placeholder of its input.
        executor_input: the input that the driver fills in.
    """

    container: Mapping[str, Any]
    executor_input: str


@dataclass(frozen=True)
class Task:
    """A step of a pipeline.

    Attributes:
        name: its name in the pipeline.
        call: its component and arguments.
    """

    name: str
    call: Call


def compile_calls(calls: Sequence[tuple[str, Mapping[str, Any]]], folder: Path) -> list[Call]:
    """Compile the components with kfp, and return each call.

    Args:
        calls: pairs of a component's name in `trainjob_kfp` and its arguments.
        folder: folder for the compiled components.
    """
    compiled = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-c", _COMPILE_SCRIPT, ROOT, folder],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert compiled.returncode == 0, compiled.stderr
    return [Call(**call) for call in json.loads(compiled.stdout)]


def workflow(
    name: str, task: Task, *, run: str, on_exit: Task | None = None, ttl_seconds_after_failure: int | None = None
) -> dict[str, Any]:
    """Return the Workflow of a pipeline with one task.

    If there is an exit task, the task is in a dsl.ExitHandler. The TTL is that of a dsl.PipelineConfig.
    """
    inner = _container_task(task)
    handler = [] if on_exit is None else [_dag("comp-exit-handler-1", inner), _exit_hook(on_exit)]
    templates = [
        _dag("entrypoint", _dag_task("root", "root", root=True), parameters=()),
        _dag("root", inner if on_exit is None else _exit_handler_task(on_exit)),
        *handler,
        _dag_driver(),
        _container_driver(),
        _container_executor(),
        _container_implementation(),
    ]
    for template in templates:  # backend/src/common/util/workflow.go, SetLabelsToAllTemplates
        template["metadata"] = {"labels": {"pipeline/runid": run}}
    ttl = {} if ttl_seconds_after_failure is None else {"secondsAfterFailure": ttl_seconds_after_failure}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "labels": {"pipeline/runid": run}},
        "spec": {
            "entrypoint": "entrypoint",
            "serviceAccountName": "pipeline-runner",
            "arguments": {"parameters": [_implementation(one) for one in filter(None, (task, on_exit))]},
            "podMetadata": {"labels": {"pipelines.kubeflow.org/v2_component": "true"}},
            **({"ttlStrategy": ttl} if ttl else {}),
            "templates": templates,
        },
    }


def _container_task(task: Task) -> list[dict[str, Any]]:
    """Return the tasks of a driver and of the component that follows it."""
    driver = _task(
        f"{task.name}-driver",
        "system-container-driver",
        {
            "task": task.call.executor_input,
            "container": f"{{{{workflow.parameters.implementations-{task.name}}}}}",
            "parent-dag-id": "{{inputs.parameters.parent-dag-id}}",
        },
    )
    outputs = f"tasks.{task.name}-driver.outputs.parameters"
    arguments = {name: f"{{{{{outputs}.{name}}}}}" for name in ("pod-spec-patch", "cached-decision")}
    return [
        driver,
        {**_task(task.name, "system-container-executor", arguments), "depends": f"{driver['name']}.Succeeded"},
    ]


def _dag_task(name: str, template: str, *, root: bool = False) -> list[dict[str, Any]]:
    """Return the tasks of a driver and of the DAG that follows it."""
    arguments = {"driver-type": "ROOT_DAG"} if root else {"parent-dag-id": "{{inputs.parameters.parent-dag-id}}"}
    driver = _task(f"{name}-driver", "system-dag-driver", arguments)
    outputs = f"tasks.{driver['name']}.outputs.parameters"
    dag = _task(name, template, {"parent-dag-id": f"{{{{{outputs}.execution-id}}}}", "condition": ""})
    return [driver, {**dag, "depends": f"{driver['name']}.Succeeded"}]


def _exit_handler_task(on_exit: Task) -> list[dict[str, Any]]:
    driver, handler = _dag_task("exit-handler-1", "comp-exit-handler-1")
    arguments = {"parameters": [{"name": "parent-dag-id", "value": "{{inputs.parameters.parent-dag-id}}"}]}
    exit_hook = {"template": _exit_hook_name(on_exit), "arguments": arguments}
    return [driver, {**handler, "hooks": {"exit": exit_hook}}]


def _exit_hook(on_exit: Task) -> dict[str, Any]:
    return _dag(_exit_hook_name(on_exit), _container_task(on_exit))


def _exit_hook_name(on_exit: Task) -> str:
    return f"exit-hook-root-{on_exit.name}"


def _task(name: str, template: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    parameters = [{"name": key, "value": value} for key, value in arguments.items()]
    return {"name": name, "template": template, "arguments": {"parameters": parameters}}


def _dag(name: str, tasks: list[dict[str, Any]], *, parameters: tuple[str, ...] = ("parent-dag-id",)) -> dict[str, Any]:
    return {"name": name, "inputs": {"parameters": [{"name": one} for one in parameters]}, "dag": {"tasks": tasks}}


def _dag_driver() -> dict[str, Any]:
    inputs = {"task": "", "parent-dag-id": "0", "driver-type": "DAG"}
    outputs = {"execution-id": None, "iteration-count": "0", "condition": "true"}
    return _driver("system-dag-driver", ["--type", "{{inputs.parameters.driver-type}}"], inputs, outputs)


def _container_driver() -> dict[str, Any]:
    inputs = dict.fromkeys(("task", "container", "parent-dag-id"))
    outputs = {"pod-spec-patch": "", "cached-decision": "false", "condition": "true"}
    given = ["--task", "{{inputs.parameters.task}}", "--container", "{{inputs.parameters.container}}"]
    return _driver("system-container-driver", ["--type", "CONTAINER", *given], inputs, outputs)


def _driver(
    name: str, options: Sequence[str], inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the template of a driver; a parameter with the default None is required."""
    paths = [
        word
        for output in outputs
        for word in (f"--{output.replace('-', '_')}_path", f"{{{{outputs.parameters.{output}.path}}}}")
    ]
    return {
        "name": name,
        "inputs": {"parameters": [_with_default({"name": one}, default) for one, default in inputs.items()]},
        "outputs": {
            "parameters": [
                {"name": one, "valueFrom": _with_default({"path": f"/tmp/outputs/{one}"}, default)}
                for one, default in outputs.items()
            ]
        },
        "container": {
            "image": "ghcr.io/kubeflow/kfp-driver",
            "command": ["python3", "-I", "-S", str(_DRIVER)],
            "args": [*options, *paths],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
        },
    }


def _with_default(parameter: dict[str, str], default: str | None) -> dict[str, str]:
    return parameter if default is None else {**parameter, "default": default}


def _container_executor() -> dict[str, Any]:
    patch = {"pod-spec-patch": "{{inputs.parameters.pod-spec-patch}}"}
    inner = {
        **_task("executor", "system-container-impl", patch),
        "when": "{{inputs.parameters.cached-decision}} != true",
    }
    template = _dag("system-container-executor", [inner], parameters=("pod-spec-patch",))
    template["inputs"]["parameters"].append({"name": "cached-decision", "default": "false"})
    return template


def _container_implementation() -> dict[str, Any]:
    scratch = {f"{name}-scratch": f"/{folder}" for name, folder in _SCRATCH.items()}
    mounts = [{"name": name, "mountPath": path} for name, path in {"kfp-launcher": "/kfp-launcher", **scratch}.items()]
    outputs = {"name": "outputs", "mountPath": "/outputs"}
    return {
        "name": "system-container-impl",
        "inputs": {"parameters": [{"name": "pod-spec-patch"}]},
        "podSpecPatch": "{{inputs.parameters.pod-spec-patch}}",
        "volumes": [
            *({"name": mount["name"], "emptyDir": {}} for mount in mounts),
            {"name": outputs["name"], "persistentVolumeClaim": {"claimName": OUTPUTS_CLAIM}},
        ],
        "initContainers": [
            {
                "name": "kfp-launcher",
                "image": "ghcr.io/kubeflow/kfp-launcher",
                "command": ["cp", str(_LAUNCHER)],
                "args": [_LAUNCH],
                "volumeMounts": mounts[:1],
            }
        ],
        "container": {
            "image": "gcr.io/ml-pipeline/should-be-overridden-during-runtime",
            "command": ["should-be-overridden-during-runtime"],
            "volumeMounts": [*mounts, outputs],
            "envFrom": [{"configMapRef": {"name": "metadata-grpc-configmap", "optional": True}}],
            "env": [
                {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{field}"}}}
                for variable, field in (("KFP_POD_NAME", "name"), ("KFP_POD_UID", "uid"))
            ],
        },
    }


_SCRATCH = {name: name for name in ("gcs", "s3", "minio")} | {
    f"dot-{name}": f".{name}" for name in ("local", "cache", "config")
}


def _implementation(task: Task) -> dict[str, Any]:
    """Return the parameter with a component's container.

    The driver patches the container into the pod's spec. The variable PATH is that of the component's image.
    """
    path = {"name": "PATH", "value": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}
    outputs = {"name": "KFP_OUTPUTS", "value": "/outputs"}
    container = {"image": "ghcr.io/trainjob/kfp-trainjob", **task.call.container, "env": [path, outputs]}
    return {"name": f"implementations-{task.name}", "value": json.dumps(container)}

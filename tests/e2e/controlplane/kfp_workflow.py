"""Workflows as Kubeflow Pipelines 2.17 compiles a pipeline, without its drivers.

Source: backend/src/v2/compiler/argocompiler.

A driver is a step that needs KFP's own server. It gives the next step a patch of the pod's spec; here this patch is a
parameter of the Workflow. Everything else is the same: the nested DAGs and their names, the pods with KFP's init
container, variables, labels and volumes, and the retries that KFP 2.17's manifests give to every template.
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

SCRATCH_VOLUME = "minio-scratch"
"""The volume for the executor's output, which exists as long as the pod."""

_LAUNCHER, _LAUNCH = ROOT / "tests" / "support" / "kfp_launcher.py", "/kfp-launcher/launch"
_COMPILE_SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import trainjob_kfp
from tests.support.kfp_pods import CompiledComponent
calls, folder = json.load(sys.stdin), pathlib.Path(sys.argv[2])
components = {name: CompiledComponent(getattr(trainjob_kfp, name), folder) for name, _ in calls}
print(json.dumps([components[name].command_line("/minio", **arguments) for name, arguments in calls]))
"""


@dataclass(frozen=True)
class Task:
    """A step of a pipeline.

    Attributes:
        name: its name in the pipeline.
        command: the component's command, with the executor's input filled in.
    """

    name: str
    command: Sequence[str]


def compile_commands(calls: Sequence[tuple[str, Mapping[str, Any]]], folder: Path) -> list[list[str]]:
    """Compile the components with kfp, and return the command line of each call.

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
    found: list[list[str]] = json.loads(compiled.stdout)
    return found


def workflow(name: str, task: Task, *, run: str, on_exit: Task | None = None) -> dict[str, Any]:
    """Return the Workflow of a pipeline with one task.

    If there is an exit task, the task is in a dsl.ExitHandler.
    """
    inner = [_step(task)]
    root = inner if on_exit is None else [_exit_handler_task(on_exit)]
    templates = [
        _dag("entrypoint", [_dag_task("root", "root")], parameters=()),
        _dag("root", root),
        *(
            []
            if on_exit is None
            else [_dag("comp-exit-handler-1", inner), _dag(_exit_hook_name(on_exit), [_step(on_exit)])]
        ),
        _container_executor(),
        _container_implementation(),
    ]
    for template in templates:  # backend/src/common/util/workflow.go, SetLabelsToAllTemplates
        template["metadata"] = {"labels": {"pipeline/runid": run}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "labels": {"pipeline/runid": run}},
        "spec": {
            "entrypoint": "entrypoint",
            "serviceAccountName": "pipeline-runner",
            "arguments": {"parameters": [_implementation_parameter(one) for one in filter(None, (task, on_exit))]},
            "podMetadata": {"labels": {"pipelines.kubeflow.org/v2_component": "true"}},
            # manifests/kustomize, ConfigMap workflow-controller-configmap: workflowDefaults since 2.17.
            "templateDefaults": {"retryStrategy": {"limit": "2", "retryPolicy": "OnError"}},
            "templates": templates,
        },
    }


def _step(task: Task) -> dict[str, Any]:
    """Return a task's step; in KFP it depends on a step with the name TASK-driver."""
    patch = {"name": "pod-spec-patch", "value": f"{{{{workflow.parameters.implementations-{task.name}}}}}"}
    return _dag_task(task.name, "system-container-executor", parameters=[patch])


def _exit_handler_task(on_exit: Task) -> dict[str, Any]:
    exit_hook = {"template": _exit_hook_name(on_exit), "arguments": {"parameters": [_PARENT_VALUE]}}
    return {**_dag_task("exit-handler-1", "comp-exit-handler-1"), "hooks": {"exit": exit_hook}}


def _exit_hook_name(on_exit: Task) -> str:
    return f"exit-hook-root-{on_exit.name}"


_PARENT_VALUE = {"name": "parent-dag-id", "value": "1"}


def _dag_task(name: str, template: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"name": name, "template": template, "arguments": {"parameters": parameters or [_PARENT_VALUE]}}


def _dag(name: str, tasks: list[dict[str, Any]], *, parameters: tuple[str, ...] = ("parent-dag-id",)) -> dict[str, Any]:
    return {"name": name, "inputs": {"parameters": [{"name": one} for one in parameters]}, "dag": {"tasks": tasks}}


def _container_executor() -> dict[str, Any]:
    patch = {"name": "pod-spec-patch", "value": "{{inputs.parameters.pod-spec-patch}}"}
    inner = {
        **_dag_task("executor", "system-container-impl", [patch]),
        "when": "{{inputs.parameters.cached-decision}} != true",
    }
    template = _dag("system-container-executor", [inner], parameters=("pod-spec-patch",))
    template["inputs"]["parameters"].append({"name": "cached-decision", "default": "false"})
    return template


def _container_implementation() -> dict[str, Any]:
    scratch = {f"{name}-scratch": f"/{folder}" for name, folder in _SCRATCH.items()}
    mounts = [{"name": name, "mountPath": path} for name, path in {"kfp-launcher": "/kfp-launcher", **scratch}.items()]
    return {
        "name": "system-container-impl",
        "inputs": {"parameters": [{"name": "pod-spec-patch"}]},
        "podSpecPatch": "{{inputs.parameters.pod-spec-patch}}",
        "volumes": [{"name": mount["name"], "emptyDir": {}} for mount in mounts],
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
            "volumeMounts": mounts,
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


def _implementation_parameter(task: Task) -> dict[str, Any]:
    """Return a driver's output: the pod's patch with command and arguments.

    Source: backend/src/v2/driver/driver.go.
    """
    main = {
        "name": "main",
        "image": "ghcr.io/trainjob/kfp-trainjob",
        "command": ["python3", _LAUNCH, *task.command],
        "env": [{"name": "PATH", "value": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}],  # the image's
        "resources": {},
    }
    return {"name": f"implementations-{task.name}", "value": json.dumps({"containers": [main]})}

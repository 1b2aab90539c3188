"""Run key of the launcher, found without any argument of the pipeline's author.

On a cluster, it is read from the launcher's own pod; under `kfp.local`, from the executor's input. Both are the same
for every try of a task in a run, so that a launcher that starts again finds its TrainJob. The component's inputs, and
with them its cache key, stay unchanged.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.client import Cluster, Connection
from trainjob.errors import InvalidSpec, NotFound, Problem, TrainJobError
from trainjob.lifecycle import RunKey

RUN_ID_VARIABLE = "TRAINJOB_RUN_ID"
"""Environment variable with the name of the run, for use under `kfp.local`, where KFP does not give one.

A run that is started again under the same name adopts the TrainJobs of the earlier one.
"""

# Set on every container by KFP 2.17, backend/src/v2/compiler/argocompiler/common.go.
POD_VARIABLE = "KFP_POD_NAME"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

# Set on pods by KFP's API server (backend/src/common/util/consts.go) and by Argo (workflow/common/common.go).
_RUN_LABEL = "pipeline/runid"
WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
_NODE_ANNOTATION = "workflows.argoproj.io/node-name"

# Argo 4.0 names the n-th try of a node or a whole DAG `name(n)`, and the n-th item of a loop `name(n:item)`.
_TRY_SUFFIX = re.compile(r"\(\d+\)(?=\.|$)")
_ITERATION = re.compile(r"\((\d+):[^)]*\)")

# kfp.local 2.17, executor_input_utils.py: <root>/<pipeline>-<time>/[<loop>-iteration-<n>/]<task>/executor_output.json.
_LOCAL_RUN_FOLDER = re.compile(r"(?P<pipeline>.+)-(?P<time>\d{4}(?:-\d\d){5}-\d{6})")


def get_own_cluster(cluster: Cluster, connection: Connection) -> Cluster:
    """Return the client of the cluster of this process's own pod, with its service account.

    This is often the cluster of the training.

    Args:
        cluster: client of the training's cluster.
        connection: connection of that client; it may lead to another cluster than that of the pod.
    """
    is_own_cluster = connection.uses_service_account and not connection.namespace
    if is_own_cluster or not _NAMESPACE_FILE.exists():
        return cluster
    return Cluster(Connection(in_cluster=True))


def get_own_pod(own_cluster: Cluster) -> dict[str, Any] | None:
    """Return the launcher's own pod; None if Kubeflow Pipelines did not start it.

    Raises:
        PermissionDenied: the service account may not `get pods`.
        ClusterError: the pod does not exist or cannot be read.
    """
    name = os.environ.get(POD_VARIABLE)
    if not name:
        return None
    pod = own_cluster.get_pod(name, own_cluster.namespace)
    if pod is None:
        raise NotFound(
            f"pod {name} does not exist in namespace {own_cluster.namespace}, so the pipeline task is not known",
            hint=f"{POD_VARIABLE} must name the launcher's own pod; unset it elsewhere",
        )
    return pod


def get_own_run_key(pod: Mapping[str, Any] | None, *, task: str = "step") -> RunKey:
    """Return the run key of this process.

    Args:
        pod: own pod of this process, if it has one.
        task: name of the task if this is neither a pod of a pipeline nor a task of `kfp.local`.

    Raises:
        TrainJobError: the pod does not belong to Kubeflow Pipelines.
    """
    if pod is not None:
        return run_key_of_pod(pod)
    return run_key_of_local_run(parse_executor_input(sys.argv), os.environ.get(RUN_ID_VARIABLE, ""), task=task)


def workflow_owner_reference(pod: Mapping[str, Any] | None, namespace: str) -> dict[str, Any]:
    """Return an ownerReference to the run's Workflow.

    An object with this owner is deleted with the Workflow. The reference is not that of a controller, because the
    Workflow's controller does not know the object. It does not block the owner's deletion either. Otherwise admission
    could require the permission to finalize Workflows (Kubernetes, OwnerReferencesPermissionEnforcement).

    Args:
        pod: the launcher's own pod.
        namespace: namespace of the object that gets the owner.

    Raises:
        InvalidSpec: there is no Workflow, or it is in another namespace, which Kubernetes 1.36 does not allow for an
            owner.
    """
    meta: Mapping[str, Any] = pod["metadata"] if pod else {}
    found = find_workflow(pod)
    if found is None:
        where = f"pod {meta['name']}" if meta else "a process that is not a pod of a pipeline's run"
        raise InvalidSpec(Problem("delete_with_run", "True", f"leave it out: {where} has no Workflow as its owner"))
    if meta["namespace"] != namespace:
        rule = f"the TrainJob is in namespace {namespace}, the run in {meta['namespace']}: leave it out, or namespace"
        raise InvalidSpec(Problem("delete_with_run", "True", rule))
    kept = {name: found[name] for name in ("apiVersion", "kind", "name", "uid")}
    return {**kept, "controller": False, "blockOwnerDeletion": False}


def find_workflow(pod: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the ownerReference of a pod to its Workflow; None if there is none."""
    owners = (pod["metadata"].get("ownerReferences") if pod else None) or ()
    return next((owner for owner in owners if owner["kind"] == "Workflow"), None)


def run_key_of_pod(pod: Mapping[str, Any]) -> RunKey:
    """Return the run key of a launcher's pod.

    It is the same for all tries and after RetryRun, and different for each loop iteration.

    Raises:
        TrainJobError: the pod does not belong to a run of Kubeflow Pipelines.
    """
    meta = pod["metadata"]
    labels, node = meta.get("labels") or {}, (meta.get("annotations") or {}).get(_NODE_ANNOTATION, "")
    workflow = labels.get(WORKFLOW_LABEL, "")
    if not (workflow and node):
        raise TrainJobError(
            f"pod {meta.get('name')} lacks the label {WORKFLOW_LABEL} or the annotation {_NODE_ANNOTATION}",
            hint=f"{POD_VARIABLE} must name the pod of a Kubeflow Pipelines task; unset it elsewhere",
        )
    path = _TRY_SUFFIX.sub("", node).removeprefix(f"{workflow}.").removesuffix(".executor")
    task = _ITERATION.sub("", path.rpartition(".")[2])
    return RunKey(
        engine="kfp",
        workflow=workflow,
        task=task,
        run=labels.get(_RUN_LABEL, workflow),
        map_index="" if path in (task, f"root.{task}") else _map_index(path),
    )


def _map_index(path: str) -> str:
    """Return a text that distinguishes tasks of one name in loops and nested pipelines.

    It is short enough for a label.
    """
    return "-".join([*_ITERATION.findall(path), _short_hash(path)])


def run_key_of_local_run(executor_values: Mapping[str, Any] | None, run_id: str, *, task: str) -> RunKey:
    """Return the run key of a task that does not run in a pod.

    The folder of its outputs and its arguments identify a task of `kfp.local`. The folder names pipeline, start time,
    loop iteration and task. The start time changes when the pipeline is started again. A `run_id` replaces it, so that
    both starts are one run.

    Args:
        executor_values: input of KFP's executor; None in another process.
        run_id: name of the run; if it is empty, each start is a separate run.
        task: name of the task if there is no executor's input.
    """
    if executor_values is None:
        return RunKey(engine="kfp", workflow="local", task=task, run=run_id or uuid.uuid4().hex)
    folder = Path(executor_values["outputs"]["outputFile"]).parent
    path, found = [folder.name], None
    for parent in folder.parents:  # loops and nested pipelines add folders of their own
        found = _LOCAL_RUN_FOLDER.fullmatch(parent.name)
        if found:
            break
        path.insert(0, parent.name)
    given = (executor_values.get("inputs") or {}).get("parameterValues") or {}
    arguments = {name: value for name, value in given.items() if name != "program"}  # as in the request's hash
    return RunKey(
        engine="kfp",
        workflow=found["pipeline"] if found else "local",
        task=folder.name,
        run=run_id or (found["time"] if found else uuid.uuid4().hex),
        map_index=_short_hash(json.dumps([path, arguments], sort_keys=True)),
    )


def parse_executor_input(argv: Sequence[str]) -> dict[str, Any] | None:
    """Return the input of KFP's executor from its command line; None in another process."""
    for flag, value in itertools.pairwise(argv):
        if flag == "--executor_input":
            try:
                found = json.loads(value)
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

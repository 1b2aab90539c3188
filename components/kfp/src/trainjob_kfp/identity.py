"""Who this launcher works for: the run key, found without a word from the pipeline's author.

On a cluster it is read from the launcher's own pod; under `kfp.local` from the executor's input. Either is the same for
every try of the same task in the same run, so that a launcher that starts again finds its TrainJob, and leaves the
component's inputs, and with them the cache key, alone.
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
"""Names the run where Kubeflow Pipelines does not: under `kfp.local`, to have a run that is started again adopt."""

# Set on every container by KFP 2.17, backend/src/v2/compiler/argocompiler/common.go.
POD_VARIABLE = "KFP_POD_NAME"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

# Put on pods by KFP's API server (backend/src/common/util/consts.go) and by Argo (workflow/common/common.go).
_RUN_LABEL = "pipeline/runid"
WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
_NODE_ANNOTATION = "workflows.argoproj.io/node-name"

# Argo 4.0 names the n-th try of a node `name(n)`, also that of a whole DAG, and the n-th item of a loop `name(n:item)`.
_TRY = re.compile(r"\(\d+\)(?=\.|$)")
_ITERATION = re.compile(r"\((\d+):[^)]*\)")

# kfp.local 2.17, executor_input_utils.py: <root>/<pipeline>-<time>/[<loop>-iteration-<n>/]<task>/executor_output.json.
_LOCAL_RUN = re.compile(r"(?P<pipeline>.+)-(?P<time>\d{4}(?:-\d\d){5}-\d{6})")


def home_of(cluster: Cluster, connection: Connection) -> Cluster:
    """The cluster that this process's own pod is in, as its service account sees it; often that of the training.

    Args:
        cluster: that of the training.
        connection: what it was opened with; it may lead elsewhere.
    """
    at_home = connection.uses_service_account and not connection.namespace
    if at_home or not _NAMESPACE_FILE.exists():
        return cluster
    return Cluster(Connection(in_cluster=True))


def own_pod(home: Cluster) -> dict[str, Any] | None:
    """The launcher's own pod; None where it is none of Kubeflow Pipelines.

    Raises:
        PermissionDenied: the service account may not `get pods`.
        ClusterError: the pod can't be read, or is not there.
    """
    name = os.environ.get(POD_VARIABLE)
    if not name:
        return None
    pod = home.get_pod(name, home.namespace)
    if pod is None:
        raise NotFound(
            f"there is no pod {name} in namespace {home.namespace}, so which pipeline task this is can't be learned",
            hint=f"{POD_VARIABLE} must name the launcher's own pod; unset it elsewhere",
        )
    return pod


def own_run_key(pod: Mapping[str, Any] | None, *, task: str = "step") -> RunKey:
    """The run key of this process.

    Args:
        pod: its own pod, if it has one.
        task: names the task when this is neither a pipeline's pod nor a task of `kfp.local`.

    Raises:
        TrainJobError: the pod is not one of Kubeflow Pipelines.
    """
    if pod is not None:
        return key_of_pod(pod)
    return key_of_local_run(executor_input(sys.argv), os.environ.get(RUN_ID_VARIABLE, ""), task=task)


def workflow_owner(pod: Mapping[str, Any] | None, namespace: str) -> dict[str, Any]:
    """An ownerReference to the run's Workflow: what has it goes when the Workflow is deleted.

    It is no controller's, as the Workflow's controller knows nothing of it, and does not block the owner's deletion,
    for which admission could ask the right to finalize Workflows (Kubernetes, OwnerReferencesPermissionEnforcement).

    Args:
        pod: the launcher's own pod.
        namespace: of what will have the owner.

    Raises:
        InvalidSpec: there is no Workflow, or it is in another namespace, where nothing may own (Kubernetes 1.36).
    """
    meta: Mapping[str, Any] = pod["metadata"] if pod else {}
    found = next((one for one in meta.get("ownerReferences") or () if one["kind"] == "Workflow"), None)
    if found is None:
        where = f"pod {meta['name']}" if meta else "a process that is no pod of a pipeline's run"
        raise InvalidSpec(Problem("delete_with_run", f"{where} has no Workflow as its owner", "leave it out here"))
    if meta["namespace"] != namespace:
        given = f"the TrainJob in namespace {namespace}, the run in {meta['namespace']}"
        raise InvalidSpec(Problem("delete_with_run", given, "both must be in one namespace: leave one of the two out"))
    kept = {name: found[name] for name in ("apiVersion", "kind", "name", "uid")}
    return {**kept, "controller": False, "blockOwnerDeletion": False}


def key_of_pod(pod: Mapping[str, Any]) -> RunKey:
    """The run key of a launcher pod: the same for all tries and after RetryRun, another for each loop iteration.

    Raises:
        TrainJobError: it is not a pod of a Kubeflow Pipelines run.
    """
    meta = pod["metadata"]
    labels, node = meta.get("labels") or {}, (meta.get("annotations") or {}).get(_NODE_ANNOTATION, "")
    workflow = labels.get(WORKFLOW_LABEL, "")
    if not (workflow and node):
        raise TrainJobError(
            f"pod {meta.get('name')} carries no label {WORKFLOW_LABEL} or no annotation {_NODE_ANNOTATION}",
            hint=f"{POD_VARIABLE} must name the pod of a Kubeflow Pipelines task; unset it elsewhere",
        )
    path = _TRY.sub("", node).removeprefix(f"{workflow}.").removesuffix(".executor")
    task = _ITERATION.sub("", path.rpartition(".")[2])
    return RunKey(
        engine="kfp",
        workflow=workflow,
        task=task,
        run=labels.get(_RUN_LABEL, workflow),
        map_index="" if path in (task, f"root.{task}") else _place(path),
    )


def _place(path: str) -> str:
    """Tells apart tasks of one name in loops and nested pipelines, short enough for a label."""
    return "-".join([*_ITERATION.findall(path), _short_hash(path)])


def key_of_local_run(given: Mapping[str, Any] | None, run_id: str, *, task: str) -> RunKey:
    """The run key of a task that is no pod.

    A task of `kfp.local` is known by the folder of its outputs, which names pipeline, start, loop iteration and task,
    and by its arguments. The start changes when the pipeline is started again; a `run_id` takes its place and makes
    both one run.

    Args:
        given: the executor's input; None outside of KFP's executor.
        run_id: the run's name; empty means that each start is a run of its own.
        task: names the task when there is no executor's input.
    """
    if given is None:
        return RunKey(engine="kfp", workflow="local", task=task, run=run_id or uuid.uuid4().hex)
    folder = Path(given["outputs"]["outputFile"]).parent
    place, found = [folder.name], None
    for parent in folder.parents:  # loops and nested pipelines have folders of their own in between
        found = _LOCAL_RUN.fullmatch(parent.name)
        if found:
            break
        place.insert(0, parent.name)
    arguments = (given.get("inputs") or {}).get("parameterValues") or {}
    return RunKey(
        engine="kfp",
        workflow=found["pipeline"] if found else "local",
        task=folder.name,
        run=run_id or (found["time"] if found else uuid.uuid4().hex),
        map_index=_short_hash(json.dumps([place, arguments], sort_keys=True)),
    )


def executor_input(argv: Sequence[str]) -> dict[str, Any] | None:
    """What KFP's executor was given on its command line; None in another process."""
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

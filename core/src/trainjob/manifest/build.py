"""Conversion of the general request to the dict that is sent to the API server."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from trainjob.addresses import parse_source
from trainjob.job_variables import ATTEMPT_VARIABLE, JOB_VARIABLE, NAME_VARIABLE, POD_VARIABLE, RUN_VARIABLE
from trainjob.manifest.additions import build_from_manifest
from trainjob.manifest.code import code_env, find_code, list_code_volumes, unpacking_command
from trainjob.manifest.compatibility import (
    check_dialect_support,
    resolve_node_counts,
    uses_stock_mpi,
)
from trainjob.manifest.dialect import Dialect, PodPatch, pod_patch
from trainjob.manifest.environment import env_list, get_credential_keys, secret_env
from trainjob.manifest.function import function_command
from trainjob.manifest.labels import ATTEMPT, PREFIX, RUN_KEY, read_workflow_run, retention_annotations
from trainjob.manifest.model_check import checked_command
from trainjob.manifest.supervision import supervised_command
from trainjob.manifest.tracking import tracking_env
from trainjob.spec import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    DataCacheInitializer,
    Initializer,
    Placement,
    PodSecurityContext,
    SecretReference,
    SecurityContext,
    TrainJob,
    TrainJobManifest,
    Volume,
    WorkspaceVolume,
)
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import get_framework
from trainjob.spec.queue import KUEUE_PREFIX, PRIORITY_LABEL, QUEUE_LABEL
from trainjob.spec.resources import ResourceRequirements, is_stock_builtin, resolve_resources
from trainjob.spec.runtime_patches import MAX_PATCHES
from trainjob.spec.trainer_versions import API_VERSION
from trainjob.spec.trainers import escape_expansion, validate_command
from trainjob.spec.volumes import WORKSPACE, WORKSPACE_VOLUME

_TRAINER_JOB, _LAUNCHER_JOB = "node", "launcher"

_Items = list[dict[str, Any]]


def build_trainjob(
    job: TrainJob | TrainJobManifest,
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    dialect: Dialect = Dialect.V2_2,
) -> dict[str, Any]:
    """Return the TrainJob as a dict for `create` with strict field validation.

    Args:
        job: the request; a `TrainJobManifest` only gets the name, labels and annotations.
        name: name of the TrainJob.
        namespace: namespace of the TrainJob.
        labels: labels added to the request's own and to those of its queue.
        annotations: annotations added to the request's own.
        dialect: shape of the API.

    Raises:
        InvalidSpec: the dialect cannot express the request, or a function cannot be sent.
    """
    if isinstance(job, TrainJobManifest):
        return build_from_manifest(job, name=name, namespace=namespace, labels=labels, annotations=annotations)
    check_dialect_support(job, dialect)
    extra = {
        "labels": {**job.labels, **_queue_labels(job), **(labels or {})},
        "annotations": {**job.annotations, **retention_annotations(job), **(annotations or {})},
    }
    metadata = {"name": name, "namespace": namespace, **{key: values for key, values in extra.items() if values}}
    spec = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": job.runtime.kind, "name": job.runtime.name},
        **({"initializer": initializer} if (initializer := _initializer(job.initializer)) else {}),
        **({"trainer": trainer} if (trainer := _trainer(job, dialect, metadata)) else {}),
        **_runtime_patches(job, dialect, metadata),
        **({"activeDeadlineSeconds": math.ceil(job.deadline.total_seconds())} if job.deadline else {}),
        **({"suspend": True} if job.suspend else {}),
        **({"managedBy": job.managed_by} if job.managed_by else {}),
    }
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _queue_labels(job: TrainJob) -> dict[str, str]:
    if job.queue is None:
        return {}
    priority = {PRIORITY_LABEL: job.queue.priority_class} if job.queue.priority_class else {}
    return {QUEUE_LABEL: job.queue.name, **priority}


def _trainer(job: TrainJob, dialect: Dialect, metadata: Mapping[str, Any]) -> dict[str, Any]:
    trainer = job.trainer
    if isinstance(trainer, BuiltinTrainer):
        nodes, processes = resolve_node_counts(trainer.config, job.runtime.builtin_model, dialect)
        return _builtin_trainer(
            trainer, job.initializer, _node_fields(nodes, processes, trainer.config.resources_per_node)
        )
    env, is_watched = trainer.env, job.watchdog is not None
    words = function_command(trainer, is_watched=is_watched) if isinstance(trainer, CustomTrainer) else trainer.command
    if code := find_code(job):
        words = unpacking_command(job, code, words or (), metadata["name"])
        env = {**code_env(code), **(env or {})}
    if job.workspace:
        env = {**_own_variables(metadata), **(env or {})}
    if job.model_check:
        words = checked_command(job.model_check, job.program, words or ())
    if job.tracking:
        env = {**tracking_env(job.tracking), **(env or {})}
    if job.tracking or job.watchdog:
        words = supervised_command(job, words or (), metadata)
    values = {
        "image": trainer.image,
        "command": list(words) if words else None,
        "args": list(trainer.args) if isinstance(trainer, CustomTrainerContainer) and trainer.args else None,
        "env": (env_list(env) if env else []) + _pod_variables(job, metadata) or None,
        **_node_fields(trainer.max_nodes, trainer.num_proc_per_node, trainer.resources_per_node),
    }
    return {key: value for key, value in values.items() if value is not None}


def _own_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that identify a TrainJob with a run key in its containers."""
    annotations = metadata.get("annotations", {})
    if RUN_KEY not in annotations:
        return {}
    attempt = metadata.get("labels", {}).get(ATTEMPT, "")
    return {NAME_VARIABLE: metadata["name"], ATTEMPT_VARIABLE: attempt, RUN_VARIABLE: read_workflow_run(annotations)}


def _pod_variables(job: TrainJob, metadata: Mapping[str, Any]) -> _Items:
    """Return the variables that identify a pod and its Job, for a folder's lease."""
    if not job.workspace or RUN_KEY not in metadata.get("annotations", {}):
        return []
    # Kubernetes 1.27 and later set this label (pkg/controller/job).
    fields = {POD_VARIABLE: "metadata.name", JOB_VARIABLE: "metadata.labels['batch.kubernetes.io/controller-uid']"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _builtin_trainer(
    trainer: BuiltinTrainer, initializer: Initializer | None, size: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `trainer` field of a built-in trainer.

    Exactly the command [tune, run] makes the Trainer add recipe, configuration and the paths (Trainer 2.3,
    plugins/torch).
    """
    arguments = get_framework(trainer.config).build_builtin_arguments(trainer.config, _dataset_path(initializer))
    validate_command(tuple(arguments), "trainer.config")
    values = {"command": ["tune", "run"], "args": arguments, "env": env_list(trainer.env) if trainer.env else None}
    return {key: value for key, value in {**values, **size}.items() if value is not None}


def _dataset_path(initializer: Initializer | None) -> str:
    """Return the path of the rows below the dataset's folder.

    It is the part after the repository in `hf://organization/name/path`, as in the Kubeflow SDK.
    """
    uri = initializer.dataset.storage_uri if initializer and initializer.dataset else ""
    path = parse_source(uri, "dataset").path if uri.startswith("hf://") else "" if uri else "data"
    return escape_expansion(f"{WORKSPACE}/dataset/{path}".rstrip("/"))


def _node_fields(
    nodes: int | None, processes: int | str | None, resources: ResourceRequirements | Mapping[str, str] | None
) -> dict[str, Any]:
    if not isinstance(resources, ResourceRequirements):
        # Set both: the Trainer counts GPUs in either, and the amounts of devices must be equal in both.
        resources = ResourceRequirements(requests=resources or {}, limits=resources or {})
    amounts = {"requests": resolve_resources(resources.requests), "limits": resolve_resources(resources.limits)}
    per_node = {name: values for name, values in amounts.items() if values}
    return {"numNodes": nodes, "numProcPerNode": processes, "resourcesPerNode": per_node or None}


def _runtime_patches(job: TrainJob, dialect: Dialect, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that change the runtime; the request's own patches are the last."""
    ours = _pod_patch(job, dialect, metadata)
    patches = [*ours.get("runtimePatches", ()), *job.runtime_patches]
    if len(patches) > MAX_PATCHES:
        rule = f"at most {MAX_PATCHES - len(patches) + len(job.runtime_patches)} fit into this TrainJob"
        raise invalid_field("runtime_patches", f"{len(job.runtime_patches)} patches", rule)
    return {**ours, "runtimePatches": patches} if job.runtime_patches else ours


def _pod_patch(job: TrainJob, dialect: Dialect, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    placement, container = (_placement(job.placement), _container(job.placement)) if job.placement else ({}, {})
    volumes, mounts = _volumes_and_mounts(job, metadata)
    texts = _pod_metadata(job)
    if not (volumes or placement or container or texts):
        return {}
    has_both = is_stock_builtin(job.runtime.name, job.runtime.kind)
    kinds = [kind for kind in ("dataset", "model") if has_both or getattr(job.initializer, kind, None)]
    launcher = [_LAUNCHER_JOB] if uses_stock_mpi(job) else []
    names = [_TRAINER_JOB, *launcher, *(f"{kind}-initializer" for kind in kinds)]
    return pod_patch(PodPatch(names, volumes, mounts, placement, texts, container), dialect)


def _pod_metadata(job: TrainJob) -> dict[str, dict[str, str]]:
    """Return the labels and annotations of the pods: those of the request and its queue.

    Those of this project are left out, and the labels of Kueue: it would treat a pod with such a label as another
    workload.
    """
    own = f"{PREFIX}/"
    placed = job.queue.pod_annotations if job.queue else {}
    texts = {
        "labels": {key: text for key, text in job.labels.items() if not key.startswith((own, KUEUE_PREFIX))},
        "annotations": {**{key: text for key, text in job.annotations.items() if not key.startswith(own)}, **placed},
    }
    return {kind: given for kind, given in texts.items() if given}


def _volumes_and_mounts(job: TrainJob, metadata: Mapping[str, Any]) -> tuple[_Items, _Items]:
    """Return the pod's volumes, each once, and their mounts; the workspace's come first."""
    workspace = [_workspace(job.workspace)] if job.workspace else []
    mounted = [*workspace, *list_code_volumes(job, metadata), *map(_volume, job.volumes)]
    sources = {mount["name"]: source for source, mount in mounted}
    return [{"name": name, **source} for name, source in sources.items()], [mount for _, mount in mounted]


def _workspace(workspace: WorkspaceVolume) -> tuple[Mapping[str, Any], dict[str, Any]]:
    claim = {"persistentVolumeClaim": {"claimName": workspace.claim}}
    # With type Directory, a missing folder causes an event of the pod. Without it, a folder of root would be created.
    folder = {"hostPath": {"path": workspace.node_path, "type": "Directory"}}
    return claim if workspace.claim else folder, _mount(WORKSPACE_VOLUME, WORKSPACE, workspace.sub_path)


def _volume(volume: Volume) -> tuple[Mapping[str, Any], dict[str, Any]]:
    return volume.source, _mount(volume.name, volume.mount_path, volume.sub_path, read_only=volume.read_only)


def _mount(name: str, path: str, sub_path: str, *, read_only: bool = False) -> dict[str, Any]:
    more = {**({"subPath": sub_path} if sub_path else {}), **({"readOnly": True} if read_only else {})}
    return {"name": name, "mountPath": path, **more}


def _placement(placement: Placement) -> dict[str, Any]:
    values = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [dict(toleration) for toleration in placement.tolerations],
        "affinity": dict(placement.affinity),
        "serviceAccountName": placement.service_account_name,
        "imagePullSecrets": [{"name": name} for name in placement.image_pull_secrets],
        "terminationGracePeriodSeconds": placement.termination_grace_period_seconds,
        "securityContext": _security_context(placement.security_context),
    }
    return {key: value for key, value in values.items() if value}


def _container(placement: Placement) -> dict[str, Any]:
    context = _security_context(placement.container_security_context)
    return {"securityContext": context} if context else {}


def _security_context(context: PodSecurityContext | SecurityContext | None) -> dict[str, Any]:
    """Return a security context with the names of the Kubernetes API."""
    given = context.model_dump(mode="json", exclude_defaults=True) if context else {}
    return {re.sub("_(.)", lambda found: found[1].upper(), name): value for name, value in given.items()}


def _initializer(initializer: Initializer | None) -> dict[str, Any]:
    if initializer is None:
        return {}
    values = {kind: getattr(initializer, kind) for kind in ("dataset", "model")}
    return {kind: _source(value) for kind, value in values.items() if value is not None}


def _source(source: Any) -> dict[str, Any]:
    """Return the fields of an initializer, with the variables for the Trainer's program.

    A Secret whose keys are named like these variables is passed as a whole, by reference.
    """
    secret: SecretReference | None = getattr(source, "secret", None)
    variables = _cache_variables(source) if isinstance(source, DataCacheInitializer) else _store_variables(source)
    if secret is not None and secret.keys:
        variables.update(secret_env(secret, get_credential_keys(source.storage_uri)))
    result: dict[str, Any] = {"storageUri": source.storage_uri}
    if env := env_list({**variables, **(source.env or {})}):
        result["env"] = env
    if secret is not None and not secret.keys:
        result["secretRef"] = {"name": secret.name}
    return result


def _store_variables(source: Any) -> dict[str, Any]:
    return {
        "IGNORE_PATTERNS": ",".join(source.ignore_patterns) if source.ignore_patterns else None,
        **{name.upper(): getattr(source, name, None) for name in ("endpoint", "region", "role_arn")},
    }


def _cache_variables(source: DataCacheInitializer) -> dict[str, Any]:
    """Return the variables of the data cache.

    Its size is one node more than requested, because that node is the cache's head (kubeflow SDK 0.5).
    """
    names = ("head_cpu", "head_mem", "worker_cpu", "worker_mem", "iam_role")
    return {
        "CLUSTER_SIZE": str(source.num_data_nodes + 1),
        "METADATA_LOC": source.metadata_loc,
        **{name.upper(): getattr(source, name) for name in names},
    }

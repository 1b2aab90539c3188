"""Composition of a TrainJob's JobSet from its runtime; pure functions.

Source: Trainer 2.3 `pkg/runtime/core/trainingruntime.go`, `pkg/runtime/framework/plugins/{plainml,jobset}`. A runtime
whose policy is not `torch`, `jax` or `xgboost` is treated as a plain one.
"""

from __future__ import annotations

from copy import deepcopy

from trainjob_local.controllers import torchtune
from trainjob_local.controllers.frameworks import set_framework_variables, upsert_variables
from trainjob_local.controllers.patching import apply_runtime_patches
from trainjob_local.controllers.resource_requirements import (
    canonical_requirements,
    cpu_count,
    gpu_count,
    merge_requirements,
)
from trainjob_local.objects import Json, owner_reference

__all__ = ["ANCESTOR_LABEL", "build_jobset", "compute_scale", "containers_of", "jobset_template", "node_resources"]

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODE = "node"


def build_jobset(job: Json, runtime: Json) -> Json:
    """Build the JobSet of a TrainJob as the Trainer applies it.

    The result does not have the defaults of the JobSet webhook yet.
    """
    template = jobset_template(job, runtime)
    spec = template["spec"]
    for replicated in spec["replicatedJobs"]:
        _set_parallelism(replicated, job, runtime)
        _set_initializer(replicated, job)
        if _ancestor_step(replicated) == "trainer":
            _set_trainer(replicated, job, runtime)
        for container in containers_of(replicated):
            if container.get("resources"):
                container["resources"] = canonical_requirements(container["resources"])
    spec["suspend"] = job["spec"].get("suspend", False)
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations") if template["metadata"].get(key)}
    names = {"name": job["metadata"]["name"], "namespace": job["metadata"]["namespace"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {**names, **metadata, "ownerReferences": [owner_reference(job, "trainjobs")]},
        "spec": spec,
    }


def jobset_template(job: Json, runtime: Json) -> Json:
    """Return the runtime's JobSet template with the TrainJob's patches and resources."""
    template = apply_runtime_patches(runtime["spec"].get("template") or {}, job["spec"].get("runtimePatches") or [])
    wanted = _trainer_spec(job).get("resourcesPerNode")
    if wanted is None or not runtime["spec"].get("mlPolicy"):
        return template
    for replicated in template["spec"]["replicatedJobs"]:
        node = _find_container(replicated, _NODE) if _ancestor_step(replicated) == "trainer" else None
        if node is not None:
            node["resources"] = merge_requirements(node.get("resources") or {}, wanted)
    return template


def containers_of(replicated: Json) -> list[Json]:
    """Return the containers of a replicated job; empty if it has none.

    A patch can add a replicated job without containers.
    """
    pod = ((replicated.get("template") or {}).get("spec") or {}).get("template") or {}
    return list((pod.get("spec") or {}).get("containers") or [])


def node_resources(job: Json, runtime: Json) -> Json:
    """Return the resources of a node, from which recipe and number of processes are derived.

    The TrainJob's own resources take precedence over the runtime's.
    """
    wanted = _trainer_spec(job).get("resourcesPerNode")
    if wanted is not None:
        return dict(wanted)
    template = jobset_template(job, runtime)
    for replicated in template["spec"]["replicatedJobs"]:
        if replicated["name"] == _NODE or _ancestor_step(replicated) == "trainer":
            node = _find_container(replicated, _NODE)
            if node is not None and node.get("resources"):
                return dict(node["resources"])
    return {}


def compute_scale(job: Json, runtime: Json) -> torchtune.Scale:
    """Compute the nodes, processes per node and GPUs per node of a TrainJob."""
    trainer, resources = _trainer_spec(job), node_resources(job, runtime)
    gpus = gpu_count(resources)
    processes = trainer.get("numProcPerNode")
    if processes is None and gpus == 0:
        processes = max(1, cpu_count(resources))
    return torchtune.Scale(nodes=_nodes(job, runtime), processes=processes, gpus=gpus)


# -- parts of the template --------------------------------------------------------------------------------------------


def _trainer_spec(job: Json) -> Json:
    return dict(job["spec"].get("trainer") or {})


def _nodes(job: Json, runtime: Json) -> int:
    """Return the number of nodes of a TrainJob.

    The TrainJob's own number is used unchanged, even 0. The runtime's number counts as at least 1.
    """
    wanted = _trainer_spec(job).get("numNodes")
    policy = runtime["spec"].get("mlPolicy")
    return int(wanted) if wanted is not None else max(1, int((policy or {}).get("numNodes", 1)))


def _ancestor_step(replicated: Json) -> str:
    metadata = (replicated.get("template") or {}).get("metadata") or {}
    return str((metadata.get("labels") or {}).get(ANCESTOR_LABEL, ""))


def _find_container(replicated: Json, name: str) -> Json | None:
    return next((one for one in containers_of(replicated) if one["name"] == name), None)


def _set_parallelism(replicated: Json, job: Json, runtime: Json) -> None:
    spec = replicated.setdefault("template", {}).setdefault("spec", {})
    trainer = _ancestor_step(replicated) == "trainer"
    own = max(1, int(spec.get("parallelism", 1)))
    counted = trainer and (runtime["spec"].get("mlPolicy") is not None or "numNodes" in _trainer_spec(job))
    count = _nodes(job, runtime) if counted else own
    spec["parallelism"] = spec["completions"] = count


def _set_initializer(replicated: Json, job: Json) -> None:
    step = _ancestor_step(replicated)
    kind = {"dataset-initializer": "dataset", "model-initializer": "model"}.get(step)
    if kind is None:
        return
    replicated["replicas"] = 1
    wanted = (job["spec"].get("initializer") or {}).get(kind)
    container = _find_container(replicated, step)
    if wanted is None or container is None:
        return
    uri = [{"name": "STORAGE_URI", "value": wanted["storageUri"]}] if wanted.get("storageUri") is not None else []
    upsert_variables(container, [*uri, *_env_variables(wanted)])
    if wanted.get("secretRef"):
        sources = container.setdefault("envFrom", [])
        sources.append({"secretRef": {"name": wanted["secretRef"]["name"]}})


def _set_trainer(replicated: Json, job: Json, runtime: Json) -> None:
    replicated["replicas"] = 1
    container = _find_container(replicated, _NODE)
    if container is None or job["spec"].get("trainer") is None:
        return
    trainer, own_command = _trainer_spec(job), list(container.get("command") or [])
    for key in ("image", "command", "args"):
        if trainer.get(key):
            container[key] = deepcopy(trainer[key])
    policy = runtime["spec"].get("mlPolicy") or {}
    set_framework_variables(container, job, _env_variables(trainer), policy, compute_scale(job, runtime), own_command)


def _env_variables(source: Json) -> list[Json]:
    """Return the environment variables of a source in the form that the Trainer applies.

    A variable with a source (`valueFrom`) has no value; a variable without source and value has an empty value. The
    Trainer does not know keys of files (2.3).
    """
    given: list[Json] = source.get("env") or []
    return [
        {
            "name": one["name"],
            "valueFrom": {kind: ref for kind, ref in one["valueFrom"].items() if kind != "fileKeyRef"},
        }
        if "valueFrom" in one
        else {"value": "", **one}
        for one in given
    ]

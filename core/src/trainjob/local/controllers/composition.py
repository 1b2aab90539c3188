"""Composes the JobSet of a TrainJob from its runtime; pure.

Source: Trainer 2.3 `pkg/runtime/core/trainingruntime.go`, `pkg/runtime/framework/plugins/{torch,plainml,jobset}`,
`pkg/apply/apply.go`. Runtimes with another policy than `torch` are treated as plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from trainjob.local.controllers import torchtune
from trainjob.local.controllers.patching import with_runtime_patches
from trainjob.local.controllers.resources import canonical_requirements, cpu_count, gpu_count, merged_requirements
from trainjob.local.objects import Json, owner_reference

__all__ = ["ANCESTOR_LABEL", "compose_jobset", "containers_of", "job_template", "node_resources", "scale_of"]

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODE, _PORT = "node", 29500
_RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def compose_jobset(job: Json, runtime: Json) -> Json:
    """Builds the JobSet of a TrainJob, as the Trainer applies it (before the JobSet webhook's defaults)."""
    template = job_template(job, runtime)
    spec = template["spec"]
    for replicated in spec["replicatedJobs"]:
        _set_count(replicated, job, runtime)
        _set_initializer(replicated, job)
        if _ancestor(replicated) == "trainer":
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


def job_template(job: Json, runtime: Json) -> Json:
    """The runtime's JobSet template with the TrainJob's patches and resources."""
    template = with_runtime_patches(runtime["spec"].get("template") or {}, job["spec"].get("runtimePatches") or [])
    wanted = _trainer_spec(job).get("resourcesPerNode")
    if wanted is None or not runtime["spec"].get("mlPolicy"):
        return template
    for replicated in template["spec"]["replicatedJobs"]:
        node = _container(replicated, _NODE) if _ancestor(replicated) == "trainer" else None
        if node is not None:
            node["resources"] = merged_requirements(node.get("resources") or {}, wanted)
    return template


def containers_of(replicated: Json) -> list[Json]:
    """The containers of a replicated job; empty where a patch has added a job without any."""
    pod = ((replicated.get("template") or {}).get("spec") or {}).get("template") or {}
    return list((pod.get("spec") or {}).get("containers") or [])


def node_resources(job: Json, runtime: Json) -> Json:
    """The resources that count for recipes and processes: the TrainJob's own if it has any, else the runtime's."""
    wanted = _trainer_spec(job).get("resourcesPerNode")
    if wanted is not None:
        return dict(wanted)
    template = job_template(job, runtime)
    for replicated in template["spec"]["replicatedJobs"]:
        if replicated["name"] == _NODE or _ancestor(replicated) == "trainer":
            node = _container(replicated, _NODE)
            if node is not None and node.get("resources"):
                return dict(node["resources"])
    return {}


def scale_of(job: Json, runtime: Json) -> torchtune.Scale:
    """Works out nodes, processes per node and GPUs per node of a TrainJob on a torch runtime."""
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
    """The TrainJob's number of nodes as it is, 0 too; a runtime's own counts as at least one."""
    wanted = _trainer_spec(job).get("numNodes")
    policy = runtime["spec"].get("mlPolicy")
    return int(wanted) if wanted is not None else max(1, int((policy or {}).get("numNodes", 1)))


def _ancestor(replicated: Json) -> str:
    metadata = (replicated.get("template") or {}).get("metadata") or {}
    return str((metadata.get("labels") or {}).get(ANCESTOR_LABEL, ""))


def _container(replicated: Json, name: str) -> Json | None:
    return next((one for one in containers_of(replicated) if one["name"] == name), None)


def _set_count(replicated: Json, job: Json, runtime: Json) -> None:
    spec = replicated.setdefault("template", {}).setdefault("spec", {})
    trainer = _ancestor(replicated) == "trainer"
    own = max(1, int(spec.get("parallelism", 1)))
    counted = trainer and (runtime["spec"].get("mlPolicy") is not None or "numNodes" in _trainer_spec(job))
    count = _nodes(job, runtime) if counted else own
    spec["parallelism"] = spec["completions"] = count


def _set_initializer(replicated: Json, job: Json) -> None:
    step = _ancestor(replicated)
    kind = {"dataset-initializer": "dataset", "model-initializer": "model"}.get(step)
    if kind is None:
        return
    replicated["replicas"] = 1
    wanted = (job["spec"].get("initializer") or {}).get(kind)
    container = _container(replicated, step)
    if wanted is None or container is None:
        return
    uri = [{"name": "STORAGE_URI", "value": wanted["storageUri"]}] if wanted.get("storageUri") is not None else []
    _upsert(container, "env", [*uri, *_variables(wanted)], _same_name)
    if wanted.get("secretRef"):
        sources = container.setdefault("envFrom", [])
        sources.append({"secretRef": {"name": wanted["secretRef"]["name"]}})


def _set_trainer(replicated: Json, job: Json, runtime: Json) -> None:
    replicated["replicas"] = 1
    container = _container(replicated, _NODE)
    if container is None or job["spec"].get("trainer") is None:
        return
    trainer, own_command = _trainer_spec(job), list(container.get("command") or [])
    _upsert(container, "env", _variables(trainer), _same_name)
    for key in ("image", "command", "args"):
        if trainer.get(key):
            container[key] = deepcopy(trainer[key])
    if "torch" in (runtime["spec"].get("mlPolicy") or {}):
        _set_torch(container, job, runtime, own_command)


def _variables(wanted: Json) -> list[Json]:
    """The variables as they are applied: one with a source has no value, one without any has an empty value."""
    given: list[Json] = wanted.get("env") or []
    return [
        {key: one[key] for key in one if key != "value"} if "valueFrom" in one else {"value": "", **one}
        for one in given
    ]


@dataclass(frozen=True)
class _Address:
    """Where the first node of a TrainJob is found."""

    host: str
    port: int = _PORT


def _set_torch(container: Json, job: Json, runtime: Json, own_command: Sequence[str]) -> None:
    name, scale = job["metadata"]["name"], scale_of(job, runtime)
    address = _Address(f"{name}-{_NODE}-0-0.{name}")
    processes = "auto" if scale.processes is None else str(scale.processes)
    env: list[Json] = [
        {"name": "PET_NNODES", "value": str(scale.nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": processes},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _RANK}}},
    ]
    if _trainer_spec(job).get("command") == torchtune.ENTRYPOINT:
        container["command"] += _tune_arguments(job, scale, address, own_command)
    else:
        env += [
            {"name": "PET_MASTER_ADDR", "value": address.host},
            {"name": "PET_MASTER_PORT", "value": str(address.port)},
        ]
    _upsert(container, "env", env, _same_name)
    _upsert(container, "ports", [{"containerPort": address.port, "protocol": "TCP"}], _same_port)


def _tune_arguments(job: Json, scale: torchtune.Scale, address: _Address, own_command: Sequence[str]) -> list[str]:
    rendezvous = [f"--rdzv_endpoint={address.host}:{address.port}"] if scale.needs_rendezvous else []
    args = _trainer_spec(job).get("args") or []
    recipe, config = torchtune.recipe_and_config(job["spec"]["runtimeRef"]["name"], scale, args)
    return [*rendezvous, recipe, "--config", config, *torchtune.kept_overrides(own_command)]


def _same_name(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("name") == other.get("name")


def _same_port(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Ports without a name have the same, none: so the first of them is replaced."""
    return one.get("containerPort") == other.get("containerPort") or _same_name(one, other)


def _upsert(container: Json, field: str, items: Sequence[Json], same: Callable[[Json, Json], bool]) -> None:
    """Replaces the first item that is the same where it stands, or appends."""
    for item in items:
        present = container.setdefault(field, [])
        places = [index for index, one in enumerate(present) if same(one, item)]
        if places:
            present[places[0]] = deepcopy(item)
        else:
            present.append(deepcopy(item))

"""Checks that a TrainJob fits its training runtime, before it is created.

The API server accepts TrainJobs that then hang, fail in a pod, or lose fields without an error. Some patch a replicated
job that the runtime does not have. The `trainer` of others reaches no container, or the members of their gang wait for
each other. docs/explanation/decisions/0008-runtimes-are-read-when-named.md explains when a runtime is read.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.client.runtimes import RUNTIME_KINDS
from trainjob.errors import ClusterError, InvalidSpec, NotFound, Problem
from trainjob.spec import BuiltinTrainer, TrainJob, TrainJobManifest
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.spec.resources import count_gpus
from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob.status.pods import NODE
from trainjob.status.runtime_description import RuntimeDescription

_STOCK_RUNTIME_KEY = ("ClusterTrainingRuntime", STOCK_RUNTIME)
_TRAINER_FIELDS = ("image", "command", "args", "env", "resourcesPerNode")
_CPU_IMAGE_NAME = re.compile(r"(^|[-_.:/])cpu($|[-_.:])")
_MAX_NAMES = 12


def check_runtime(
    cluster: Cluster, job: TrainJob | TrainJobManifest, manifest: Mapping[str, Any], *, fresh: bool = False
) -> None:
    """Raise an error if a TrainJob does not fit its runtime, and warn of likely mistakes.

    The stock runtime `torch-distributed`, which every Trainer has, is not read unless `fresh` is true. If the
    credentials do not permit to get the runtime, nothing is checked.

    Args:
        cluster: the cluster of the TrainJob.
        job: the request.
        manifest: the TrainJob built from it.
        fresh: whether to read the runtime again instead of using the cached one, because the cluster has refused the
            TrainJob.

    Raises:
        InvalidSpec: the runtime does not exist, or the TrainJob does not fit it.
        ClusterError: a request failed.
    """
    kind, name, namespace = job.runtime.kind, job.runtime.name, manifest["metadata"]["namespace"]
    if (kind, name) == _STOCK_RUNTIME_KEY and not fresh:
        return
    try:
        runtime = cluster.runtimes.find(name, kind, namespace, fresh=fresh)
    except NotFound as error:
        raise InvalidSpec(_missing_runtime(cluster, job, namespace)) from error
    if runtime is None:
        return
    if problems := list(find_problems(job, manifest, runtime)):
        raise InvalidSpec(problems)
    for advice in find_warnings(manifest, runtime):
        warnings.warn(advice, stacklevel=2)


def find_problems(
    job: TrainJob | TrainJobManifest, manifest: Mapping[str, Any], runtime: RuntimeDescription
) -> Iterator[Problem]:
    """Yield the reasons why the TrainJob can't run on this runtime.

    [check_runtime][] explains the arguments.
    """
    rules = [
        *_unknown_targets(manifest, runtime),
        *_unreachable_fields(manifest, runtime),
        *_cpu_only_image(manifest, runtime),
        *_lost_claims(manifest, runtime),
    ]
    rules += _incomplete_gang(runtime)
    if isinstance(job, TrainJob):
        rules += [*_framework_mismatch(job, runtime), *_missing_mounts(job, manifest, runtime)]
    for rule in dict.fromkeys(rules):
        yield Problem(_runtime_field(job), repr(runtime.name), rule)


def find_warnings(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Yield warnings about settings that are allowed and usually mistakes.

    [check_runtime][] explains the arguments.
    """
    if runtime.deprecated:
        yield f"the {runtime.kind} {runtime.name} is deprecated and will be removed: use another runtime"
    runtime_devices = _device_names(runtime.trainer.resources if runtime.trainer else {})
    requested = _requested_resources(manifest)
    if requested and (not_requested := sorted(runtime_devices - _device_names(requested))):
        yield (
            f"the {runtime.kind} {runtime.name} requests {', '.join(not_requested)}, which resources_per_node does not "
            "set: set it in resources_per_node, too. Trainer 2.3 requests both, older Trainers ignore the runtime's "
            "resources, and only resources_per_node determines the number of processes"
        )


def _missing_runtime(cluster: Cluster, job: TrainJob | TrainJobManifest, namespace: str) -> Problem:
    """Return the problem for a missing runtime, with the names of the existing runtimes.

    If the credentials do not permit to list runtimes, it has no names.
    """
    name, kind = job.runtime.name, job.runtime.kind
    names_by_kind: dict[str, list[str]] = {each: [] for each in RUNTIME_KINDS}
    for each in names_by_kind:
        with contextlib.suppress(ClusterError):
            names_by_kind[each] = [runtime.name for runtime in cluster.runtimes.list_all(each, namespace)]
    where = f" in namespace {namespace}" if kind == "TrainingRuntime" else ""
    rule = f"there is no such {kind}{where}"
    other = next(each for each in names_by_kind if each != kind)
    close = difflib.get_close_matches(name, names_by_kind[kind], n=1)
    if name in names_by_kind[other]:
        rule += f": the runtime of this name is a {other}, so set kind='{other}'"
    elif close:
        rule += f": did you mean {close[0]}?"
    if existing := [*close, *(each for each in names_by_kind[kind] if each not in close)]:
        more = f" and {len(existing) - _MAX_NAMES} more" if len(existing) > _MAX_NAMES else ""
        rule += f" (there are {', '.join(existing[:_MAX_NAMES])}{more})"
    return Problem(_runtime_field(job), repr(name), rule)


def _runtime_field(job: TrainJob | TrainJobManifest) -> str:
    return "runtime" if isinstance(job, TrainJob) else "manifest.spec.runtimeRef"


def _unknown_targets(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Yield a problem for each patched replicated job or container that does not exist.

    Trainer 2.3 does not refuse them, because it searches the spec after it has applied the patches. Older
    Trainers refuse unknown replicated jobs.
    """
    steps = {step.name: step.containers for step in runtime.steps}
    for name, containers in _patched_jobs(manifest):
        if name not in steps:
            existing = ", ".join(steps) or "none"
            yield (
                f"it has no replicated job {name}, which workspace, volumes, placement or runtime_patches need; it has "
                f"{existing}"
            )
        for container in containers:
            if name in steps and container not in steps[name]:
                yield f"its replicated job {name} has no container {container}; it has {', '.join(steps[name])}"


def _patched_jobs(manifest: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each replicated job that a TrainJob patches, with its patched containers."""
    spec = get_mapping(manifest, "spec")
    for patch in get_list(spec, "runtimePatches"):
        for job in get_list(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            yield get_str(job, "name"), _container_names(get_mapping(job, "template", "spec", "template", "spec"))
    for override in (*get_list(spec, "podTemplateOverrides"), *get_list(spec, "podSpecOverrides")):
        for target in get_list(override, "targetJobs"):
            yield get_str(target, "name"), _container_names(get_mapping(override, "spec") or override)


def _container_names(pod: Mapping[str, Any]) -> list[str]:
    return [
        get_str(container, "name") for container in (*get_list(pod, "initContainers"), *get_list(pod, "containers"))
    ]


def _unreachable_fields(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Yield a problem if fields of `trainer` would reach no container.

    Trainer 2.3 ignores such fields without an error (plugins/jobset/builder.go).
    """
    set_fields = [name for name in _TRAINER_FIELDS if get_mapping(manifest, "spec", "trainer").get(name)]
    if set_fields and (runtime.trainer is None or NODE not in runtime.trainer.containers):
        yield (
            "it has no replicated job with the label 'trainer.kubeflow.org/trainjob-ancestor-step: trainer' and a "
            f"container {NODE}, so {', '.join(set_fields)} would have no effect"
        )


def _framework_mismatch(job: TrainJob, runtime: RuntimeDescription) -> Iterator[str]:
    wanted = job.trainer.config.framework if isinstance(job.trainer, BuiltinTrainer) else ""
    if wanted and runtime.framework not in ("", wanted):
        yield f"a BuiltinTrainer needs a runtime of the framework {wanted}; its framework is {runtime.framework}"


def _incomplete_gang(runtime: RuntimeDescription) -> Iterator[str]:
    """Yield a problem if the runtime's gang includes initializers.

    Trainer 2.3 counts the pods of all steps into the gang (plugins/{coscheduling,volcano}). The initializers must
    end before the training pods are created, so the gang is never complete.
    """
    if runtime.gang and (first := ", ".join(runtime.initializers)):
        yield (
            f"its gang ({runtime.gang}) starts the pods of all its steps together, but {first} must end before the "
            "training pods are created: run InitializeDataset and InitializeModel as separate steps, on another runtime"
        )


def _missing_mounts(job: TrainJob, manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Yield a problem if the trainer's replicated job would lack workspace and volumes.

    On a custom MPI runtime the trainer may be the launcher.
    """
    patched = {name for name, _ in _patched_jobs(manifest)}
    if (job.workspace or job.volumes) and runtime.trainer and runtime.trainer.name not in patched:
        yield (
            f"its trainer is the replicated job {runtime.trainer.name}, which would not have the workspace and "
            "the volumes: use a TrainJobManifest that also patches this replicated job"
        )


def _cpu_only_image(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    devices, step = _device_names(_requested_resources(manifest)), runtime.trainer
    own_image = get_mapping(manifest, "spec", "trainer").get("image")
    if devices and step and not own_image and _CPU_IMAGE_NAME.search(step.image.rpartition("/")[2]):
        yield f"its image {step.image} is for CPUs, but resources_per_node requests {', '.join(sorted(devices))}"


def _lost_claims(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Yield a problem if the resources of the TrainJob remove the runtime's claims.

    Source: Trainer 2.0 to 2.2 plugins/jobset/builder.go, 2.3 pkg/runtime/core/trainingruntime.go; seen on each.
    """
    claims = runtime.trainer.claims if runtime.trainer else ()
    if claims and get_mapping(manifest, "spec", "trainer").get("resourcesPerNode"):
        yield (
            f"its resource claims ({', '.join(claims)}) would be dropped, as by each Trainer up to 2.3 if "
            "resources_per_node is given: leave it out, and set the resources in the runtime"
        )


def _requested_resources(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    resources = get_mapping(manifest, "spec", "trainer", "resourcesPerNode")
    amounts = {**get_mapping(resources, "requests"), **get_mapping(resources, "limits")}
    return {name: str(amount) for name, amount in amounts.items()}


def _device_names(resources: Mapping[str, str]) -> set[str]:
    return {name for name, amount in resources.items() if count_gpus({name: amount})}

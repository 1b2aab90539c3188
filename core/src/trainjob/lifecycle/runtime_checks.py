"""Whether a TrainJob fits its training runtime, told before it is sent.

The API server accepts what then hangs, fails in its pod or is left out without a word: a patch for a replicated job
that the runtime has not got, a trainer that reaches no container, a gang whose members wait for one another. When a
runtime is read for this: docs/decisions/0008-runtimes-are-read-when-they-are-named.md.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.client.runtimes import KINDS
from trainjob.errors import ClusterError, InvalidSpec, NotFound, Problem
from trainjob.spec import BuiltinTrainer, TrainJob, TrainJobManifest
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.spec.resources import gpus
from trainjob.status.reading import rows, table, text
from trainjob.status.runtimes import RuntimeDescription

_STOCK = ("ClusterTrainingRuntime", STOCK_RUNTIME)
_CONTAINER = "node"  # the one that the trainer reaches (Trainer 2.3, plugins/jobset/builder.go)
_REACHED = ("image", "command", "args", "env", "resourcesPerNode")
_TORCHTUNE = "torchtune"
_FOR_CPUS = re.compile(r"(^|[-_.:/])cpu($|[-_.:])")
_MOST_NAMED = 12


def check_runtime(
    cluster: Cluster, job: TrainJob | TrainJobManifest, manifest: Mapping[str, Any], *, fresh: bool = False
) -> None:
    """Refuse what the runtime can't be; warn of what is doubtful.

    The stock runtime `torch-distributed`, which every Trainer has, is not read unless `fresh`.

    Args:
        cluster: where.
        job: what is asked for.
        manifest: the TrainJob made of it.
        fresh: the cluster has refused it: look again, whatever is known.

    Raises:
        InvalidSpec: there is no such runtime, or the TrainJob does not fit it.
        ClusterError: the cluster can't be asked.
    """
    kind, name, namespace = job.runtime.kind, job.runtime.name, manifest["metadata"]["namespace"]
    if (kind, name) == _STOCK and not fresh:
        return
    try:
        runtime = cluster.runtimes.find(name, kind, namespace, fresh=fresh)
    except NotFound as error:
        raise InvalidSpec(_missing(cluster, job, namespace)) from error
    if runtime is None:
        return
    if problems := list(misfits(job, manifest, runtime)):
        raise InvalidSpec(problems)
    for advice in doubts(manifest, runtime):
        warnings.warn(advice, stacklevel=2)


def misfits(
    job: TrainJob | TrainJobManifest, manifest: Mapping[str, Any], runtime: RuntimeDescription
) -> Iterator[Problem]:
    """What could not work on this runtime; see [check_runtime][] for the arguments."""
    broken = [*_unknown_targets(manifest, runtime), *_out_of_reach(manifest, runtime), *_for_cpus(manifest, runtime)]
    broken += _never_whole(runtime)
    if isinstance(job, TrainJob):
        broken += [*_other_framework(job, runtime), *_not_mounted(job, manifest, runtime)]
    for rule in dict.fromkeys(broken):
        yield Problem(_field(job), repr(runtime.name), rule)


def doubts(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """What may be meant, and is more often a mistake; see [check_runtime][] for the arguments."""
    if runtime.deprecated:
        yield f"the {runtime.kind} {runtime.name} is deprecated: it will be removed, so name another one"
    brought, asked = _devices(runtime.trainer.resources if runtime.trainer else {}), _asked(manifest)
    if asked and (unsaid := sorted(brought - _devices(asked))):
        yield (
            f"the {runtime.kind} {runtime.name} brings {', '.join(unsaid)}, of which resources_per_node says nothing: "
            "Trainer 2.3 adds the two together, older ones drop the runtime's, and processes are counted by what is "
            "asked for; say it there, too"
        )


def _missing(cluster: Cluster, job: TrainJob | TrainJobManifest, namespace: str) -> Problem:
    """Naming what is there; somebody who may not list them is told only that it is missing."""
    name, kind = job.runtime.name, job.runtime.kind
    known: dict[str, list[str]] = {each: [] for each in KINDS}
    for each in known:
        with contextlib.suppress(ClusterError):
            known[each] = [runtime.name for runtime in cluster.runtimes.all(each, namespace)]
    where = f" in namespace {namespace}" if kind == "TrainingRuntime" else ""
    rule = f"there is no such {kind}{where}"
    other = next(each for each in known if each != kind)
    close = difflib.get_close_matches(name, known[kind], n=1)
    if name in known[other]:
        rule += f": the one of this name is a {other}, so say kind='{other}'"
    elif close:
        rule += f": did you mean {close[0]}?"
    if there := [*close, *(each for each in known[kind] if each not in close)]:
        more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
        rule += f" (there are {', '.join(there[:_MOST_NAMED])}{more})"
    return Problem(_field(job), repr(name), rule)


def _field(job: TrainJob | TrainJobManifest) -> str:
    return "runtime" if isinstance(job, TrainJob) else "manifest.spec.runtimeRef"


def _unknown_targets(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Trainer 2.3 looks for them in what it has patched already, where they are; older ones refuse unknown jobs."""
    steps = {step.name: step.containers for step in runtime.steps}
    for name, containers in _targets(manifest):
        if name not in steps:
            has = ", ".join(steps) or "none"
            yield f"it has no replicated job {name}, which workspace, volumes or placement are to change; it has {has}"
        for container in containers:
            if name in steps and container not in steps[name]:
                yield f"its replicated job {name} has no container {container}; it has {', '.join(steps[name])}"


def _targets(manifest: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The replicated jobs that a TrainJob changes, and the containers in them, in any dialect."""
    spec = table(manifest, "spec")
    for patch in rows(spec, "runtimePatches"):
        for job in rows(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            yield text(job, "name"), _containers(table(job, "template", "spec", "template", "spec"))
    for override in (*rows(spec, "podTemplateOverrides"), *rows(spec, "podSpecOverrides")):
        for target in rows(override, "targetJobs"):
            yield text(target, "name"), _containers(table(override, "spec") or override)


def _containers(pod: Mapping[str, Any]) -> list[str]:
    return [text(one, "name") for one in (*rows(pod, "initContainers"), *rows(pod, "containers"))]


def _out_of_reach(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """Nothing in the Trainer says so: the fields are left out (2.3, plugins/jobset/builder.go)."""
    given = [name for name in _REACHED if table(manifest, "spec", "trainer").get(name)]
    if given and (runtime.trainer is None or _CONTAINER not in runtime.trainer.containers):
        yield (
            f"no replicated job of it is labelled trainer.kubeflow.org/trainjob-ancestor-step: trainer and has a "
            f"container {_CONTAINER}, so {', '.join(given)} would reach nothing"
        )


def _other_framework(job: TrainJob, runtime: RuntimeDescription) -> Iterator[str]:
    if isinstance(job.trainer, BuiltinTrainer) and runtime.framework not in ("", _TORCHTUNE):
        yield f"a BuiltinTrainer needs a runtime of the framework {_TORCHTUNE}, and this one's is {runtime.framework}"


def _never_whole(runtime: RuntimeDescription) -> Iterator[str]:
    """The Trainer counts the pods of all steps into the gang (2.3, plugins/{coscheduling,volcano})."""
    if runtime.gang and (first := ", ".join(runtime.initializers)):
        yield (
            f"its gang ({runtime.gang}) waits for the pods of all its steps at once, and {first} must end before the "
            "training's are made: run InitializeDataset and InitializeModel as steps of their own, on another runtime"
        )


def _not_mounted(job: TrainJob, manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    """On an MPI runtime of one's own the trainer may be its launcher."""
    reached = {name for name, _ in _targets(manifest)}
    if (job.workspace or job.volumes) and runtime.trainer and runtime.trainer.name not in reached:
        yield (
            f"its trainer is the replicated job {runtime.trainer.name}, where workspace and volumes would be missing: "
            "give the TrainJob as a manifest that patches it, too"
        )


def _for_cpus(manifest: Mapping[str, Any], runtime: RuntimeDescription) -> Iterator[str]:
    wanted, step = _devices(_asked(manifest)), runtime.trainer
    own_image = table(manifest, "spec", "trainer").get("image")
    if wanted and step and not own_image and _FOR_CPUS.search(step.image.rpartition("/")[2]):
        yield f"its image {step.image} is for CPUs, and resources_per_node asks for {', '.join(sorted(wanted))}"


def _asked(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    asked = table(manifest, "spec", "trainer", "resourcesPerNode")
    return {name: str(amount) for name, amount in {**table(asked, "requests"), **table(asked, "limits")}.items()}


def _devices(resources: Mapping[str, str]) -> set[str]:
    return {name for name, amount in resources.items() if gpus({name: amount})}

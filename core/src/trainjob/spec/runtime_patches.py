"""A request's own patches of its runtime, for what no field of ours says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_document
from trainjob.spec.kubernetes_values import check_kubernetes_value
from trainjob.spec.problems import REDACTED
from trainjob.spec.queue import KUEUE_PREFIX, QUEUE_LABEL

MAX_PATCHES = 15
"""Patches of a request with our own ones: a TrainJob has at most 16, and Kueue adds one."""
_SCHEMA = "spec.runtimePatches[]"
# A domain-prefixed path (Kubernetes 1.36, apimachinery/pkg/util/validation, IsDomainPrefixedPath).
_MANAGER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_TAKEN = ("trainjob.dev/", KUEUE_PREFIX)
# Containers whose variables the Trainer takes from other fields (Trainer 2.3, plugins/jobset).
_ENV_FIELDS = {
    "node": "env",
    **{f"{kind}-initializer": f"env of the {kind}'s initializer" for kind in ("dataset", "model")},
}


def _validate_runtime_patches(patches: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """Return patches that the Trainer can apply.

    Raises:
        InvalidSpec: the error names each value that the API or the Trainer would refuse, and each credential.
    """
    problems: list[Problem] = []
    plain = []
    for number, patch in enumerate(patches):
        try:
            plain.append(check_kubernetes_value(patch, _SCHEMA))
            check_document(plain[-1])
        except InvalidSpec as error:
            problems += [_place(problem, number) for problem in error.problems]
        else:
            problems += [_place(problem, number) for problem in _find_problems(plain[-1])]
    managers = [patch.get("manager") for patch in plain]
    if repeated := next((name for name in managers if managers.count(name) > 1), None):
        problems += invalid_field("", repeated, "several patches have this manager: give each its own").problems
    if problems:
        raise InvalidSpec(problems)
    return tuple(plain)


def _place(problem: Problem, number: int) -> Problem:
    """Return a problem of a patch with its path in the request."""
    is_unknown = problem.kind is ProblemKind.UNKNOWN
    advice = "; what a patch can't set, a training runtime can" if is_unknown else ""
    path = f".{problem.field}" if problem.field else ""
    return replace(problem, field=f"[{number}]{path}", allowed=f"{problem.allowed}{advice}")


def _find_problems(patch: Mapping[str, Any]) -> Iterator[Problem]:
    manager = patch["manager"]
    if not _MANAGER.fullmatch(manager) or manager.startswith(_TAKEN):
        rule = "it must be a path below a domain of yours, such as example.org/team"
        yield from invalid_field("manager", manager, rule).problems
    if patch.get("time"):
        yield from invalid_field("time", patch["time"], "the Trainer sets it: leave it out").problems
    jobset, path = patch.get("trainingRuntimeSpec", {}).get("template", {}), "trainingRuntimeSpec.template"
    yield from _find_ineffective_metadata(jobset, path, ("name", "namespace", "finalizers"))
    for number, job in enumerate(jobset.get("spec", {}).get("replicatedJobs", ())):
        template, of_job = job.get("template", {}), f"{path}.spec.replicatedJobs[{number}].template"
        yield from _find_ineffective_metadata(template, of_job, ("name", "namespace", "finalizers"))
        pod, of_pod = template.get("spec", {}).get("template", {}), f"{of_job}.spec.template"
        yield from _find_ineffective_metadata(pod, of_pod, ("name", "namespace"))
        yield from _find_problems_of_pods(pod, of_pod)


def _find_ineffective_metadata(template: Mapping[str, Any], path: str, names: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the metadata that the controllers drop (seen with Trainer 2.2 and 2.3)."""
    for name in names:
        if value := template.get("metadata", {}).get(name):
            rule = "it has no effect: leave it out"
            yield from invalid_field(f"{path}.metadata.{name}", value, rule).problems


def _find_problems_of_pods(template: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if queue := template.get("metadata", {}).get("labels", {}).get(QUEUE_LABEL):
        rule = "Kueue would treat each pod as a workload of its own: give the field queue"
        yield from invalid_field(f"{path}.metadata.labels.{QUEUE_LABEL}", queue, rule).problems
    for number, container in enumerate(template.get("spec", {}).get("containers", ())):
        if container.get("env") and (field := _ENV_FIELDS.get(container["name"])):
            rule = f"the Trainer refuses variables of the container {container['name']} here: give the field {field}"
            yield from invalid_field(f"{path}.spec.containers[{number}].env", REDACTED, rule).problems


RuntimePatches = Annotated[tuple[Mapping[str, Any], ...], AfterValidator(_validate_runtime_patches)]
"""Entries of `spec.runtimePatches`."""

"""Defaults and rules of the JobSet webhook and its CRD; pure, with the original's texts.

Source: JobSet 0.12 `pkg/webhooks/jobset_webhook.go`, `api/jobset/v1alpha2/jobset_types.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy

from trainjob.local.controllers.composition import containers_of
from trainjob.local.objects import Json

__all__ = ["claim_name", "schema_problem", "webhook_problems", "with_defaults"]

_LONGEST = 63
_TOO_LONG = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"


def claim_name(jobset: str, template: str) -> str:
    """Names the claim of a volumeClaimPolicies template."""
    return f"{template}-{jobset}"


def with_defaults(jobset: Json) -> Json:
    """Fills in what the webhook and the CRD fill in; returns a new object."""
    spec = deepcopy(jobset["spec"])
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec.get("replicatedJobs") or []:
        _default_job(replicated)
    for policy in spec.get("volumeClaimPolicies") or []:
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})
    return {**jobset, "spec": spec}


def _default_job(replicated: Json) -> None:
    replicated.setdefault("replicas", 1)
    replicated.setdefault("groupName", "default")
    job = replicated.setdefault("template", {}).setdefault("spec", {})
    job.setdefault("completionMode", "Indexed")
    template = job.setdefault("template", {})
    template.setdefault("metadata", {})
    pod = template.setdefault("spec", {})
    pod["restartPolicy"] = pod.get("restartPolicy") or "OnFailure"
    for container in [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]:
        container.setdefault("resources", {})


def schema_problem(jobset: Json) -> str:
    """What the CRD's schema refuses (422), as the text after `is invalid: `; empty for nothing."""
    for index, replicated in enumerate(jobset["spec"].get("replicatedJobs") or []):
        if not containers_of(replicated):
            field = f"spec.replicatedJobs[{index}].template.spec.template.spec.containers"
            return (
                f'[{field}: Invalid value: "null": {field} in body must be of type array: "null", '
                "<nil>: Invalid value: null: "
                "some validation rules were not checked because the object was invalid; "
                "correct the existing errors to complete validation]"
            )
    return ""


def webhook_problems(jobset: Json, claim_exists: Callable[[str], bool]) -> list[str]:
    """What the validating webhook refuses on create.

    Args:
        jobset: the JobSet with its defaults.
        claim_exists: tells whether a PersistentVolumeClaim of this name is in the namespace.
    """
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    jobs = spec.get("replicatedJobs") or []
    problems = ["DependsOn can't be set for the first ReplicatedJob"] if jobs and jobs[0].get("dependsOn") else []
    known: set[str] = set()
    for index, replicated in enumerate(jobs):
        known.add(replicated["name"])
        problems += _name_problems(name, index, replicated)
        problems += [
            f"replicatedJob: {replicated['name']} cannot depend on replicatedJob: {other['name']}"
            for other in replicated.get("dependsOn") or []
            if other["name"] not in known
        ]
    for index, policy in enumerate(spec.get("volumeClaimPolicies") or []):
        problems += _claim_problems(name, index, policy, claim_exists)
    return problems


def _name_problems(jobset: str, index: int, replicated: Json) -> Iterator[str]:
    job, spec = f"{jobset}-{replicated['name']}-{replicated['replicas'] - 1}", replicated["template"]["spec"]
    field = f'spec.replicatedJobs[{index}].name: Invalid value: "{job}": '
    if len(job) > _LONGEST:
        yield field + _TOO_LONG.format("job")
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") is not None
    if indexed and len(f"{job}-{spec['completions'] - 1}-abcde") > _LONGEST:
        yield field + _TOO_LONG.format("pod")


def _claim_problems(jobset: str, index: int, policy: Json, exists: Callable[[str], bool]) -> Iterator[str]:
    field = f"spec.volumeClaimPolicies[{index}]"
    retention = (policy.get("retentionPolicy") or {}).get("whenDeleted")
    for place, template in enumerate(policy.get("templates") or []):
        name = template["metadata"]["name"]
        claim = claim_name(jobset, name)
        if len(claim) > _LONGEST:
            where = f"{field}.template[{place}].name: Invalid value: {json.dumps(name)}"
            yield f"{where}: VolumeClaimPolicies template name is too long"
        if exists(claim) and retention != "Retain":
            where = f"{field}.retentionPolicy.whenDeleted: Invalid value: {json.dumps(retention)}"
            yield f"{where}: retentionPolicy must be retain when PVC exists"

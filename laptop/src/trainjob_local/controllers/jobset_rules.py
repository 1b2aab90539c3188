"""Defaults and rules of the JobSet webhook and its CRD; pure, with the original messages.

Source: JobSet 0.12 `pkg/webhooks/jobset_webhook.go`, `api/jobset/v1alpha2/jobset_types.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from trainjob_local.controllers.composition import containers_of
from trainjob_local.objects import Json

__all__ = ["claim_name", "schema_problem", "webhook_problems", "with_defaults"]

_LONGEST = 63
_TOO_LONG = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"


def claim_name(jobset: str, template: str) -> str:
    """Return the name of the PersistentVolumeClaim of a volumeClaimPolicies template."""
    return f"{template}-{jobset}"


def with_defaults(jobset: Json) -> Json:
    """Return a copy of a JobSet with the defaults that the webhook and the CRD set."""
    spec = deepcopy(jobset["spec"])
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec.get("replicatedJobs") or []:
        _set_job_defaults(replicated)
    for policy in spec.get("volumeClaimPolicies") or []:
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})
    if (failure_policy := spec.get("failurePolicy")) is not None:
        failure_policy.setdefault("restartStrategy", "Recreate")
        for index, rule in enumerate(failure_policy.get("rules") or []):
            rule["name"] = rule.get("name") or f"failurePolicyRule{index}"
    return {**jobset, "spec": spec}


def _set_job_defaults(replicated: Json) -> None:
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
    """Return the reason why the CRD's schema rejects a JobSet (HTTP 422), or an empty string.

    The reason is the part of the API server's message after `is invalid: `.
    """
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


def webhook_problems(jobset: Json, find_claim: Callable[[str], Json | None]) -> list[str]:
    """Return the reasons why the validating webhook rejects the creation of a JobSet.

    Args:
        jobset: the JobSet with its defaults.
        find_claim: function that looks up the PersistentVolumeClaim of a name in the JobSet's namespace; it returns
            None if the claim does not exist.
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
        for place, template in enumerate(policy.get("templates") or []):
            field = f"spec.volumeClaimPolicies[{index}].template[{place}]"
            if len(claim_name(name, template["metadata"]["name"])) > _LONGEST:
                where = f"{field}.name: Invalid value: {json.dumps(template['metadata']['name'])}"
                problems.append(f"{where}: VolumeClaimPolicies template name is too long")
            problems += _mount_problems(jobs, template["metadata"]["name"])
            problems += _claim_problems(jobset, index, place, find_claim)
    return problems


def _name_problems(jobset: str, index: int, replicated: Json) -> Iterator[str]:
    job, spec = f"{jobset}-{replicated['name']}-{replicated['replicas'] - 1}", replicated["template"]["spec"]
    field = f'spec.replicatedJobs[{index}].name: Invalid value: "{job}": '
    if len(job) > _LONGEST:
        yield field + _TOO_LONG.format("job")
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") is not None
    if indexed and len(f"{job}-{spec['completions'] - 1}-abcde") > _LONGEST:
        yield field + _TOO_LONG.format("pod")


def _mount_problems(jobs: Sequence[Json], volume: str) -> Iterator[str]:
    mounted = False
    for index, replicated in enumerate(jobs):
        pod, field = replicated["template"]["spec"]["template"]["spec"], f"spec.replicatedJobs[{index}]"
        for place, own in enumerate(pod.get("volumes") or []):
            if own.get("name") == volume:
                where = (
                    f"{field}.template.spec.template.spec.volumes[{place}].name: Invalid value: {json.dumps(volume)}"
                )
                yield f"{where}: volume name conflicts with VolumeClaimPolicy template name: {volume}"
        containers = [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]
        mounted |= any(mount["name"] == volume for one in containers for mount in one.get("volumeMounts") or [])
    if not mounted:
        where = f"spec.replicatedJobs: Invalid value: {_compact([{'name': job['name'], **job} for job in jobs])}"
        yield f"{where}: replicatedJob containers don't have a matching volumeMount: {volume} from VolumeClaimPolicies"


def _claim_problems(jobset: Json, index: int, place: int, find_claim: Callable[[str], Json | None]) -> Iterator[str]:
    meta, field = jobset["metadata"], f"spec.volumeClaimPolicies[{index}]"
    policy = jobset["spec"]["volumeClaimPolicies"][index]
    template, retention = policy["templates"][place], (policy.get("retentionPolicy") or {}).get("whenDeleted")
    name = claim_name(meta["name"], template["metadata"]["name"])
    existing = find_claim(name)
    if existing is None:
        return
    if existing["spec"] != template["spec"]:  # always true: a claim has defaults, and a volume's name once bound
        where = f"{field}.template[{place}].spec: Invalid value: {_compact(template['spec'])}"
        yield f"{where}: spec does not match existing PVC {name} in namespace {meta['namespace']}"
    if retention != "Retain":
        where = f"{field}.retentionPolicy.whenDeleted: Invalid value: {json.dumps(retention)}"
        yield f"{where}: retentionPolicy must be retain when PVC exists"


def _compact(value: Json | list[Json]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

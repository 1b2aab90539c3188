"""The Jobs, the Service and the claims of a JobSet; pure functions.

Source: JobSet 0.12 `pkg/controllers/jobset_controller.go` (constructJob, labelAndAnnotateObject,
createHeadlessSvcIfNecessary), `pkg/controllers/volume_claim_policy.go`.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy

from trainjob_local.controllers.jobset_rules import claim_name
from trainjob_local.objects import Json, owner_reference

__all__ = ["LABEL_PREFIX", "build_claims", "build_job", "build_service", "job_name"]

LABEL_PREFIX = "jobset.sigs.k8s.io/"


def job_name(jobset: Json, replicated: Json, index: int) -> str:
    """Return the name of a Job of a JobSet."""
    return f"{jobset['metadata']['name']}-{replicated['name']}-{index}"


def build_job(jobset: Json, replicated: Json, index: int) -> Json:
    """Build one Job of a JobSet."""
    labels = _build_labels(jobset, replicated, index)
    template = deepcopy(replicated["template"])
    own = template.get("metadata") or {}
    spec = template["spec"]
    pod = spec["template"]
    pod["metadata"] = _with_labels(pod.get("metadata") or {}, labels)
    network = jobset["spec"].get("network") or {}
    if network.get("enableDNSHostnames"):
        pod["spec"]["subdomain"] = _subdomain(jobset)
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    _add_volumes(pod["spec"], jobset)
    names = {"name": job_name(jobset, replicated, index), "namespace": jobset["metadata"]["namespace"]}
    owners = [owner_reference(jobset, "jobsets")]
    return {"metadata": {**names, **_with_labels(own, labels), "ownerReferences": owners}, "spec": spec}


def build_service(jobset: Json) -> Json | None:
    """Build the headless Service that gives the pods host names.

    Returns:
        The Service, or None if DNS host names are disabled.
    """
    network = jobset["spec"].get("network") or {}
    if not network.get("enableDNSHostnames"):
        return None
    meta = jobset["metadata"]
    owners = [owner_reference(jobset, "jobsets")]
    spec = {
        "clusterIP": "None",
        "clusterIPs": ["None"],
        "type": "ClusterIP",
        "selector": {f"{LABEL_PREFIX}jobset-name": meta["name"]},
        "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
    }
    names = {"name": _subdomain(jobset), "namespace": meta["namespace"]}
    return {"metadata": {**names, "ownerReferences": owners}, "spec": spec}


def build_claims(jobset: Json) -> list[Json]:
    """Build the claims of the volumeClaimPolicies.

    The JobSet owns the claims whose retention policy is Delete.
    """
    meta, claims = jobset["metadata"], []
    for policy in jobset["spec"].get("volumeClaimPolicies") or []:
        deleted = (policy.get("retentionPolicy") or {}).get("whenDeleted") == "Delete"
        for template in policy.get("templates") or []:
            own = template.get("metadata") or {}
            metadata: Json = {
                "name": claim_name(meta["name"], own["name"]),
                "namespace": meta["namespace"],
                "labels": {**(own.get("labels") or {}), f"{LABEL_PREFIX}jobset-name": meta["name"]},
            }
            if own.get("annotations"):
                metadata["annotations"] = own["annotations"]
            if deleted:
                metadata["ownerReferences"] = [owner_reference(jobset, "jobsets")]
            claims.append({"metadata": metadata, "spec": deepcopy(template["spec"])})
    return claims


def _subdomain(jobset: Json) -> str:
    network = jobset["spec"].get("network") or {}
    return str(network.get("subdomain") or jobset["metadata"]["name"])


def _with_labels(metadata: Json, added: dict[str, str]) -> Json:
    labels = {**(metadata.get("labels") or {}), **added}
    return {"labels": labels, "annotations": {**(metadata.get("annotations") or {}), **added}}


def _build_labels(jobset: Json, replicated: Json, index: int) -> dict[str, str]:
    """Return the labels of a Job and its pods; the JobSet sets the same pairs as annotations."""
    meta, jobs = jobset["metadata"], jobset["spec"]["replicatedJobs"]
    group = [one for one in jobs if one["groupName"] == replicated["groupName"]]
    key = f"{meta['namespace']}/{job_name(jobset, replicated, index)}"
    values = {
        "jobset-name": meta["name"],
        "jobset-uid": meta["uid"],
        "replicatedjob-name": replicated["name"],
        "restart-attempt": (jobset.get("status") or {}).get("restarts", 0),
        "replicatedjob-replicas": replicated["replicas"],
        "global-replicas": sum(one["replicas"] for one in jobs),
        "job-index": index,
        "job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        "job-global-index": _count_replicas_before(jobs, replicated) + index,
        "group-name": replicated["groupName"],
        "group-replicas": sum(one["replicas"] for one in group),
        "job-group-index": _count_replicas_before(group, replicated) + index,
    }
    return {LABEL_PREFIX + name: str(value) for name, value in values.items()}


def _count_replicas_before(jobs: list[Json], replicated: Json) -> int:
    names = [one["name"] for one in jobs]
    return sum(int(one["replicas"]) for one in jobs[: names.index(replicated["name"])])


def _add_volumes(pod: Json, jobset: Json) -> None:
    containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or []}
    for policy in jobset["spec"].get("volumeClaimPolicies") or []:
        for template in policy.get("templates") or []:
            name = template["metadata"]["name"]
            if name in mounted:
                claim = {"claimName": claim_name(jobset["metadata"]["name"], name)}
                pod.setdefault("volumes", []).append({"name": name, "persistentVolumeClaim": claim})

"""Preparation of an object before it is stored: identity, generation, spec and status.

All functions are pure.
Source: k8s.io/apiserver 0.36 `pkg/registry/rest/{create,update}.go` and the strategies of the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.resources import Resource

__all__ = ["prepare_for_create", "prepare_for_update"]

Json = dict[str, Any]

_SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_DROPPED_FIELDS = ("resourceVersion", "selfLink", "managedFields")
_STATUS_WRITABLE_FIELDS = ("labels", "annotations")


def prepare_for_create(resource: Resource, body: Mapping[str, Any], *, uid: str, now: str) -> Json:
    """Return the new object for the body of a create request.

    It gets its own uid and creation time, generation 1 if the resource counts generations, and the resource's initial
    status if there is one.

    Args:
        resource: resource of the object.
        body: body of the request, with `metadata.name` and, if the resource is namespaced, `metadata.namespace`.
        uid: value for `metadata.uid`.
        now: value for `metadata.creationTimestamp`.
    """
    sent = body["metadata"]
    metadata = _sent_fields(sent) | {"uid": uid, "creationTimestamp": now}
    if resource.has_generation:
        metadata["generation"] = 1
    prepared = {**body, "metadata": metadata}
    if resource.initial_status is not None:
        prepared.pop("status", None)
        if resource.initial_status or not resource.custom:
            prepared["status"] = dict(resource.initial_status)
    if resource.plural == "pods" and (prepared.get("spec") or {}).get("schedulingGates"):
        prepared["status"]["conditions"] = [_build_gated_condition(now)]
    return prepared


def _build_gated_condition(now: str) -> Json:
    """Return the condition of a pod with scheduling gates, which the scheduler ignores.

    Source: Kubernetes 1.36 `pkg/registry/core/pod/strategy.go`, applySchedulingGatedCondition.
    """
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }


def prepare_for_update(resource: Resource, old: Mapping[str, Any], body: Mapping[str, Any], *, status: bool) -> Json:
    """Return the next version of an object for the body of an update.

    Args:
        resource: resource of the object.
        old: the current object.
        body: the wanted object.
        status: whether the write is to the status subresource. Then only the status is taken from the body, and for
            built-in kinds labels and annotations, too. Otherwise the old status is kept, if the resource has the status
            subresource.
    """
    sent, kept = body["metadata"], old["metadata"]
    if status:
        may_set = () if resource.custom else _STATUS_WRITABLE_FIELDS
        metadata = {key: value for key, value in kept.items() if key not in may_set}
        metadata |= {key: sent[key] for key in may_set if sent.get(key)}
        prepared = {**old, "metadata": metadata}
        prepared.pop("status", None)
        return prepared | ({"status": body["status"]} if body.get("status") is not None else {})
    metadata = _sent_fields(sent)
    metadata |= {key: kept[key] for key in (*_SERVER_FIELDS, "namespace", "resourceVersion") if key in kept}
    prepared = {**body, "metadata": metadata}
    if resource.has_status:
        prepared.pop("status", None)
        prepared |= {"status": old["status"]} if "status" in old else {}
    if resource.has_generation and _spec_fields(prepared) != _spec_fields(old):
        metadata["generation"] = kept.get("generation", 0) + 1
    return prepared


def _sent_fields(metadata: Mapping[str, Any]) -> Json:
    """Return the fields of a sent metadata that the object gets; empty ones are left out."""
    return {key: value for key, value in metadata.items() if key not in (*_SERVER_FIELDS, *_DROPPED_FIELDS) and value}


def _spec_fields(body: Mapping[str, Any]) -> Json:
    return {key: value for key, value in body.items() if key not in ("metadata", "status", "kind", "apiVersion")}

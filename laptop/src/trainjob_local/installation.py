"""Objects that an installation of Kubeflow Trainer and JobSet has in a cluster, besides the training runtimes.

The namespace `default` also has the service account of promotions, as after `kubectl apply -k manifests/promotion`.
Source: Trainer 2.3 `manifests/base/{crds,manager,rbac}`, JobSet 0.12 `config/components/crd`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainjob_local.apiserver import Operation, Reader, Registry, StatusError
from trainjob_local.apiserver.openapi import describe_custom_kind
from trainjob_local.apiserver.resources import RESOURCES, Resource
from trainjob_local.objects import Json
from trainjob_local.runtimes import TRAINER_VERSION

__all__ = ["installed_objects", "protect_definitions"]

_NAMESPACE, _PUBLIC = "kubeflow-system", "kubeflow-trainer-public"
_RBAC = "rbac.authorization.k8s.io"
_PROMOTION = "trainjob-promotion"
_PROMOTION_RULES = (
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "patch"]},
    {
        "apiGroups": ["serving.kserve.io"],
        "resources": ["inferenceservices", "llminferenceservices"],
        "verbs": ["get", "watch", "patch"],
    },
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "watch"]},
)
_READ = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [_PUBLIC], "verbs": ["get", "list", "watch"]}


def installed_objects() -> Iterator[tuple[str, Json, str]]:
    """Yield the plural, the body and the namespace of each object, in their order."""
    for resource in RESOURCES:
        if resource.custom:
            yield "customresourcedefinitions", _definition(resource), ""
    yield "namespaces", {"metadata": {"name": _NAMESPACE}}, ""
    public = {"metadata": {"name": _PUBLIC}}
    yield "configmaps", {**public, "data": {"kubeflow_trainer_version": TRAINER_VERSION}}, _NAMESPACE
    yield "roles", {**public, "rules": [_READ]}, _NAMESPACE
    subject = {"kind": "Group", "apiGroup": _RBAC, "name": "system:authenticated"}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": _PUBLIC}
    yield "rolebindings", {**public, "roleRef": reference, "subjects": [subject]}, _NAMESPACE
    yield from _promotion_account()


def _promotion_account() -> Iterator[tuple[str, Json, str]]:
    meta = {"metadata": {"name": _PROMOTION, "labels": {"app.kubernetes.io/part-of": "trainjob"}}}
    yield "serviceaccounts", {**meta, "automountServiceAccountToken": False}, "default"
    yield "roles", {**meta, "rules": list(_PROMOTION_RULES)}, "default"
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": _PROMOTION}
    subject = {"kind": "ServiceAccount", "name": _PROMOTION}
    yield "rolebindings", {**meta, "roleRef": reference, "subjects": [subject]}, "default"


def protect_definitions(registry: Registry) -> None:
    """Refuse changes to custom resource definitions, which would have no effect here."""

    def refuse(_operation: Operation, _new: Json, _old: Json | None, _reader: Reader) -> Json:
        raise StatusError(403, "Forbidden", "the laptop cluster serves a fixed set of kinds: use another cluster")

    registry.add_admission("customresourcedefinitions", refuse)


def _definition(resource: Resource) -> Json:
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    schema = {"openAPIV3Schema": describe_custom_kind(resource)}
    version: Json = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    if resource.has_status:
        version["subresources"] = {"status": {}}
    established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
    return {
        "metadata": {"name": resource.qualified_name},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
        "status": {"acceptedNames": names, "conditions": [established], "storedVersions": [resource.version]},
    }

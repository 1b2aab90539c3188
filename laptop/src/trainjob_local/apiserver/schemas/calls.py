"""Types of the bodies that are no stored objects: how to delete, bindings, token requests, access reviews.

Source: k8s.io/apimachinery 0.36 `pkg/apis/meta/v1/types.go`, k8s.io/api 0.36 (core, authentication, authorization).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainjob_local.apiserver.schema import Field

__all__ = ["CALLS"]

_STRING, _BOOLEAN, _INT64 = Field("string", "string"), Field("boolean", "bool"), Field("integer", "int64")
_STRINGS = Field("array", "[]string", items=_STRING)


def _texts(go: str, names: str) -> Field:
    return Field("object", go, dict.fromkeys(names.split(), _STRING))


CALLS: Mapping[str, Field] = {
    "DeleteOptions": Field(
        "object",
        "v1.DeleteOptions",
        {
            "preconditions": _texts("v1.Preconditions", "uid resourceVersion"),
            "gracePeriodSeconds": _INT64,
            "propagationPolicy": _STRING,
            "orphanDependents": _BOOLEAN,
            "dryRun": _STRINGS,
        },
    ),
    "Binding": Field(
        "object",
        "v1.Binding",
        {"metadata": _texts("v1.ObjectMeta", "name"), "target": _texts("v1.ObjectReference", "kind name")},
    ),
    "TokenRequest": Field(
        "object",
        "v1.TokenRequest",
        {
            "spec": Field(
                "object",
                "v1.TokenRequestSpec",
                {
                    "expirationSeconds": _INT64,
                    "audiences": _STRINGS,
                    "boundObjectRef": _texts("v1.BoundObjectReference", "kind apiVersion name uid"),
                },
            )
        },
    ),
    "SelfSubjectAccessReview": Field(
        "object",
        "v1.SelfSubjectAccessReview",
        {
            "spec": Field(
                "object",
                "v1.SelfSubjectAccessReviewSpec",
                {
                    "resourceAttributes": _texts(
                        "v1.ResourceAttributes", "namespace verb group version resource subresource name"
                    ),
                    "nonResourceAttributes": _texts("v1.NonResourceAttributes", "path verb"),
                },
            )
        },
    ),
}
"""Shapes of these bodies by their kind."""

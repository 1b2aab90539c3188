"""Errors of the API server: `StatusError`, with the fields of a Kubernetes Status.

The functions return a `StatusError` for each usual error.
Messages, reasons and codes are those of k8s.io/apimachinery 0.36 `pkg/api/errors/errors.go` and kube-apiserver
1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.errors import ClusterError
from trainjob_local.apiserver.resources import Resource

__all__ = [
    "FieldProblem",
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "not_found",
    "too_large_version",
    "unauthorized",
]

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_CAUSES = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Not found": "FieldValueNotFound",
}


class StatusError(ClusterError):
    """Error for a request that the API server rejects.

    Attributes:
        code: the HTTP status code.
        reason: the Status object's reason, such as `NotFound`; empty for none, as in some webhook errors.
        message: the Status object's message.
        details: the Status object's details, or None.
        retry_after: seconds for the `Retry-After` header, or None.
        metadata: the Status object's metadata, such as a `continue` token.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, status=code, reason=reason)
        self.code = code
        self.details = None if details is None else dict(details)
        self.retry_after = retry_after
        self.metadata = dict(metadata or {})

    def to_status(self) -> dict[str, Any]:
        """Return the Status object for the response."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return {**status, "code": self.code}


@dataclass(frozen=True)
class FieldProblem:
    """One problem of a field of an object.

    `str()` returns the message of apimachinery 0.36 (`pkg/util/validation/field`).

    Attributes:
        field: path of the field, such as `spec.trainer.env[1]`.
        kind: kind of the problem, such as `Invalid value`, `Required value`, `Duplicate value`, `Unsupported value`,
            `Forbidden`, `Too long`.
        value: the value as JSON text; empty for kinds that show no value.
        detail: explanation of the problem or list of the allowed values.
    """

    field: str
    kind: str
    value: str = ""
    detail: str = ""

    def body(self) -> str:
        """Return the message without the field, as in the causes of a Status."""
        shown = f"{self.kind}: {self.value}" if self.value else self.kind
        return f"{shown}: {self.detail}" if self.detail else shown

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


def _details(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural, **more}


def not_found(resource: Resource, name: str) -> StatusError:
    """Return a 404 NotFound for an object that does not exist."""
    return StatusError(
        404, "NotFound", f'{resource.qualified_name} "{name}" not found', details=_details(resource, name)
    )


def already_exists(resource: Resource, name: str, *, being_deleted: bool = False) -> StatusError:
    """Return a 409 AlreadyExists for a name that is in use.

    Args:
        resource: resource of the object.
        name: name of the object.
        being_deleted: whether the existing object is being deleted.
    """
    text = f'{"object is being deleted: " if being_deleted else ""}{resource.qualified_name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, details=_details(resource, name))


def conflict(resource: Resource, name: str, why: str = _MODIFIED) -> StatusError:
    """Return a 409 Conflict for an old resourceVersion or a precondition that does not hold."""
    text = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'
    return StatusError(409, "Conflict", text, details=_details(resource, name))


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """Return a 403 Forbidden for a missing permission or a rule of the server's own admission."""
    named = f'{resource.qualified_name} "{name}"' if name else resource.qualified_name
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}", details=_details(resource, name))


def invalid(resource: Resource, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """Return a 422 Invalid for an object that breaks rules of its schema."""
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": _CAUSES.get(problem.kind, "FieldValueInvalid"), "message": problem.body(), "field": problem.field}
        for problem in problems
    ]
    details: dict[str, Any] = {"name": name} if name else {}
    details |= {"group": resource.group} if resource.group else {}
    details |= {"kind": resource.kind, "causes": causes}
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {summary}', details=details)


def bad_request(message: str) -> StatusError:
    """Return a 400 BadRequest for a malformed request."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Return a 401 Unauthorized for a token that is wrong or expired."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    """Return a 410 Expired for a version older than the history; the client has to relist."""
    return StatusError(410, "Expired", message)


def too_large_version(requested: int, current: int) -> StatusError:
    """Return a 504 Timeout for a resourceVersion that does not exist yet.

    Source: apiserver `storage.NewTooLargeResourceVersionError`.
    """
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, "Timeout", text, details=details, retry_after=1)

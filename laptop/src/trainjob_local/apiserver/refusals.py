"""What the API server answers when it says no: `Refusal`, which carries a Kubernetes Status, and the usual ones.

Texts, reasons and codes: k8s.io/apimachinery 0.36 `pkg/api/errors/errors.go` and kube-apiserver 1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.errors import ClusterError
from trainjob_local.apiserver.resources import Resource

__all__ = [
    "FieldProblem",
    "Refusal",
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


class Refusal(ClusterError):
    """The API server refuses a request.

    Attributes:
        status: the HTTP status code.
        reason: the Status object's reason, such as `NotFound`; empty for none (as some webhook errors have it).
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
        """Builds the Status object of the answer."""
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
    """One thing that is wrong with an object; `str()` gives apimachinery's text (`pkg/util/validation/field`).

    Attributes:
        field: path such as `spec.trainer.env[1]`.
        kind: such as `Invalid value`, `Required value`, `Duplicate value`, `Unsupported value`, `Forbidden`, `Too
            long`.
        value: the value as text, already in JSON; empty for kinds that show none.
        detail: what is wrong or allowed.
    """

    field: str
    kind: str
    value: str = ""
    detail: str = ""

    def body(self) -> str:
        """Gives the text without the field, as it stands in a Status cause."""
        shown = f"{self.kind}: {self.value}" if self.value else self.kind
        return f"{shown}: {self.detail}" if self.detail else shown

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


def _about(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural, **more}


def not_found(resource: Resource, name: str) -> Refusal:
    """404: no object of this name."""
    return Refusal(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_about(resource, name))


def already_exists(resource: Resource, name: str, *, going: bool = False) -> Refusal:
    """409: the name is taken, maybe by an object that is going."""
    text = f'{"object is being deleted: " if going else ""}{resource.qualified} "{name}" already exists'
    return Refusal(409, "AlreadyExists", text, details=_about(resource, name))


def conflict(resource: Resource, name: str, why: str = _MODIFIED) -> Refusal:
    """409: an old resourceVersion, or a precondition that does not hold."""
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return Refusal(409, "Conflict", text, details=_about(resource, name))


def forbidden(resource: Resource, name: str, why: str) -> Refusal:
    """403: a right is missing, or an admission rule of the server itself says no."""
    named = f'{resource.qualified} "{name}"' if name else resource.qualified
    return Refusal(403, "Forbidden", f"{named} is forbidden: {why}", details=_about(resource, name))


def invalid(resource: Resource, name: str, problems: Sequence[FieldProblem]) -> Refusal:
    """422: the object breaks rules of its schema."""
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": _CAUSES.get(problem.kind, "FieldValueInvalid"), "message": problem.body(), "field": problem.field}
        for problem in problems
    ]
    details: dict[str, Any] = {"name": name} if name else {}
    details |= {"group": resource.group} if resource.group else {}
    details |= {"kind": resource.kind, "causes": causes}
    return Refusal(422, "Invalid", f'{qualified} "{name}" is invalid: {said}', details=details)


def bad_request(message: str) -> Refusal:
    """400: the request itself makes no sense."""
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    """401: a token that is wrong or expired."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> Refusal:
    """410: history is gone; list again."""
    return Refusal(410, "Expired", message)


def too_large_version(asked: int, current: int) -> Refusal:
    """504: the asked resourceVersion does not exist yet (apiserver `storage.NewTooLargeResourceVersionError`)."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, "Timeout", text, details=details, retry_after=1)

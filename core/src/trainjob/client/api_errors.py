"""Typed errors for responses of the Kubernetes API and for failures of the network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.errors import (
    AdmissionRefused,
    ClusterError,
    ClusterUnreachable,
    Conflict,
    Expired,
    InvalidResponse,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    ServerUnavailable,
    Unauthorized,
)

_WEBHOOK = "admission webhook"
# kubernetes 1.36, staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
_QUOTA = "exceeded quota: "
_ROLE_HINT = "`trainjob check` tells which rights are missing; the Roles in manifests/ grant them"


def error_from_status(code: int, body: str, headers: Mapping[str, str], *, server: str, doing: str) -> ClusterError:
    """Return the error for an HTTP response without success.

    Args:
        code: HTTP status code.
        body: body of the response. If it is a Kubernetes Status, the error has its reason and message; otherwise the
            first 300 characters of the body are the message.
        headers: headers of the response.
        server: URL of the API server, for the message.
        doing: purpose of the request, such as `create trainjobs in namespace default`.
    """
    status = _parse_status(body)
    reason, said = str(status.get("reason") or ""), str(status.get("message") or body.strip()[:300] or f"HTTP {code}")
    more: dict[str, Any] = {"status": code, "reason": reason}
    if code == 401:
        return Unauthorized(
            f"{server} does not accept the credentials (401): can't {doing}",
            hint="the token may be expired: log in again, or renew the token or certificate of this connection",
            **more,
        )
    if code == 403 and _QUOTA in said:
        return QuotaExceeded(
            f"can't {doing} now: {said}", hint="wait for others to end, or have the quota raised", **more
        )
    if code == 403 and _WEBHOOK not in said:
        return PermissionDenied(f"no permission to {doing}: {said}", hint=_ROLE_HINT, **more)
    if code in (400, 403, 422):
        return AdmissionRefused(f"the cluster refused to {doing}: {said}", **more)
    if code == 410:
        return Expired(f"can't {doing}: {said}", **more)
    plain = {404: NotFound, 409: Conflict}.get(code)
    if plain:
        return plain(f"can't {doing}: {said}", **more)
    if code == 429 or code >= 500:
        return ServerUnavailable(
            f"{server} can't {doing} now ({code}): {said}",
            retry_after=_seconds(headers.get("Retry-After", "")),
            **more,
        )
    return ClusterError(f"can't {doing}: {said}", **more)


def error_from_network(error: Exception, *, server: str, doing: str) -> ClusterUnreachable:
    """Return the error for a request that got no response.

    Causes are DNS, a refused or reset connection, TLS, or a time-out.
    """
    cause = getattr(error, "reason", None) or error
    return ClusterUnreachable(
        f"no answer from {server}: can't {doing}: {_short_cause(cause)}",
        hint="check that the cluster is up and that the connection names the right server",
    )


def invalid_response(problem: str, *, status: int, server: str, doing: str) -> InvalidResponse:
    """Return the error for a successful response whose body is not what was requested.

    The message does not show the body, because it may be an object with secret values.

    Args:
        problem: what is wrong with the body, such as `it has no metadata.uid`.
        status: HTTP status code.
        server: URL of the API server.
        doing: purpose of the request, such as `create trainjobs in namespace default`.
    """
    return InvalidResponse(
        f"{server} answered {status} to the request to {doing}, and the body is invalid: {problem}",
        hint="try again; if it stays so, check that no proxy answers in the API server's place",
        status=status,
    )


def not_kubernetes_response(body: bytes, *, doing: str) -> ClusterError:
    """Return the error for a response that no Kubernetes API server sends.

    An example is the login page of a gateway.
    """
    shown = " ".join(body[:200].decode(errors="replace").split())
    return ClusterError(
        f"can't {doing}: what came is no answer of a Kubernetes API server: {shown or 'nothing'}",
        hint="check that the connection names an API server and that no proxy answers in its place",
    )


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After header, or None if it is not a number.

    Kubernetes sends seconds (k8s.io/apiserver 0.36). HTTP also allows a date, which is for proxies; a date counts as
    None.
    """
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


def _short_cause(cause: object) -> str:
    text = str(cause)
    if ">: " in text:  # urllib3 puts the connection object's repr first
        text = text.split(">: ", 1)[1]
    return text or type(cause).__name__


def _parse_status(body: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}

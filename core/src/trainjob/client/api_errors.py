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
    NoClusterConfigured,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    ServerUnavailable,
    Unauthorized,
)

_WEBHOOK = "admission webhook"
# kubernetes 1.36, staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
_QUOTA = "exceeded quota: "
_ANONYMOUS = 'User "system:anonymous"'  # kubernetes 1.36, staging/src/k8s.io/apiserver/pkg/authentication/user/user.go
_PLAIN_HTTP = "Client sent an HTTP request to an HTTPS server"  # Go 1.26, net/http/server.go
_CERTIFICATE_REFUSED = "CERTIFICATE_VERIFY_FAILED"  # OpenSSL's name of the error
_ROLE_HINT = "run `trainjob check` to list the missing permissions; the Roles in manifests/ grant them"


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
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or body.strip()[:300] or f"HTTP {code}")
    retry_after = _seconds(headers.get("Retry-After", ""))
    more: dict[str, Any] = {"status": code, "reason": reason, "retry_after": retry_after}
    if message.startswith(_PLAIN_HTTP):  # 400 from a real API server
        return NoClusterConfigured(
            f"can't {doing}: {server} serves https, and the connection names it with http://",
            hint="correct the URL; for a laptop cluster, use the `kubeconfig` in its state folder, which "
            "`trainjob local status` shows",
            **more,
        )
    if code == 401:
        return Unauthorized(
            f"{server} does not accept the credentials (401): can't {doing}",
            hint="the token may be expired: log in again, or renew the token or certificate of this connection",
            **more,
        )
    if code == 403 and _ANONYMOUS in message:  # no rule is missing, but credentials are
        return Unauthorized(
            f"{server} got no credentials: can't {doing}: {message}",
            hint="give the connection a token, a client certificate or a credential plugin",
            **more,
        )
    if code == 403 and _QUOTA in message:
        return QuotaExceeded(
            f"can't {doing} now: {message}",
            hint="wait until other jobs end, or have an administrator raise the ResourceQuota",
            **more,
        )
    if code == 403 and _WEBHOOK not in message:
        return PermissionDenied(f"no permission to {doing}: {message}", hint=_ROLE_HINT, **more)
    if code in (400, 403, 422):
        return AdmissionRefused(f"the cluster refused to {doing}: {message}", **more)
    if code == 410:
        return Expired(f"can't {doing}: {message}", **more)
    error_class = {404: NotFound, 409: Conflict}.get(code)
    if error_class:
        return error_class(f"can't {doing}: {message}", **more)
    if code == 429 or code >= 500:
        return ServerUnavailable(f"{server} can't {doing} now ({code}): {message}", **more)
    return ClusterError(f"can't {doing}: {message}", **more)


def error_from_network(error: Exception, *, server: str, doing: str) -> ClusterUnreachable:
    """Return the error for a request that got no response.

    Causes are DNS, a refused or reset connection, TLS, or a time-out.
    """
    cause = getattr(error, "reason", None) or error
    return ClusterUnreachable(
        f"no response from {server}: can't {doing}: {_short_cause(cause)}",
        hint="check that the API server is running and that the connection names the right server",
    )


def refused_certificate(error: Exception, *, server: str, doing: str) -> NoClusterConfigured | None:
    """Return the error for a server certificate that is not accepted.

    The result is None for another error.
    """
    cause = getattr(error, "reason", None) or error
    if _CERTIFICATE_REFUSED not in str(cause):
        return None
    return NoClusterConfigured(
        f"the certificate of {server} is not accepted: can't {doing}: {_short_cause(cause)}",
        hint="name the authority of the server's certificate (certificate-authority, ca_file), or the server's name in "
        "its certificate (tls-server-name)",
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
        f"{server} returned {status} for the request to {doing}, but the body is invalid: {problem}",
        hint="try again; if the error persists, check that no proxy responds instead of the API server",
        status=status,
    )


def not_kubernetes_response(body: bytes, *, doing: str) -> ClusterError:
    """Return the error for a response that no Kubernetes API server sends.

    An example is the login page of a gateway.
    """
    shown = " ".join(body[:200].decode(errors="replace").split())
    return ClusterError(
        f"can't {doing}: the response is not from a Kubernetes API server: {shown or 'empty'}",
        hint="check that the connection names an API server, and that no proxy responds instead of it",
    )


def repeated_continue_token(token: str, *, doing: str) -> ClusterError:
    """Return the error for a list that never ends: the server repeats a `continue` token."""
    return ClusterError(
        f"can't {doing}: the server repeats the continue token {token!r} of an earlier page, so the list never ends",
        hint="check that no proxy or cache responds instead of the API server",
    )


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After header, or None if it is not a number.

    Kubernetes sends seconds (k8s.io/apiserver 0.36). HTTP also allows a date, for which the result is None.
    """
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None


def _short_cause(cause: object) -> str:
    text = " ".join(str(cause).split())
    if ">: " in text:  # urllib3 puts the connection object's repr first
        text = text.split(">: ", 1)[1]
    return text or type(cause).__name__


def _parse_status(body: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}

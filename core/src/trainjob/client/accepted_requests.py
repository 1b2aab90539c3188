"""Memory of the requests that an API server has accepted on one connection.

It distinguishes a refusal that is probably temporary from a wrong connection or a missing permission. While a token is
rotated, the API server may refuse it for some seconds; while Roles are replaced, it may refuse single requests.
"""

from __future__ import annotations

import re

from trainjob.errors import ClusterError, Conflict, NotFound, PermissionDenied, Unauthorized

# Kubernetes 1.36, k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
_OBJECT_PATH = re.compile(
    r"(?P<collection>/api(?:s/[^/]+)?/[^/]+(?:/namespaces/[^/]+)?/(?!namespaces/)[^/]+)/[^/]+(?P<subresource>/[^/]+)?"
)
RequestKind = tuple[str, str]
"""Verb and resource of a request, to which RBAC grants access."""


def kind_of_request(method: str, path: str, *, watch: bool = False) -> RequestKind:
    """Return the verb and the resource of a request, without the object's name.

    Args:
        method: HTTP method.
        path: path of the URL.
        watch: whether the request is a watch.
    """
    verb = "WATCH" if watch else method
    if found := _OBJECT_PATH.fullmatch(path):
        return verb, f"{found['collection']}/*{found['subresource'] or ''}"
    return verb, path


class AcceptedRequests:
    """Kinds of requests that the API server has accepted on one connection.

    It is safe to use from several threads.
    """

    def __init__(self) -> None:
        self._kinds: set[RequestKind] = set()

    def add(self, kind: RequestKind) -> None:
        """Record a request that was accepted."""
        self._kinds.add(kind)

    def record_error(self, error: ClusterError, kind: RequestKind) -> None:
        """Record the error of a request, and set its `worked_before`.

        404 and 409 show that the request was accepted, because the API server checks credentials and rules first.
        """
        if isinstance(error, NotFound | Conflict):
            self.add(kind)
        elif isinstance(error, Unauthorized):
            error.worked_before = bool(self._kinds)
        elif isinstance(error, PermissionDenied):
            error.worked_before = error.retryable = kind in self._kinds

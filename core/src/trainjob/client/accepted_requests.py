"""Memory of the requests that an API server has accepted on one connection.

It distinguishes a refusal that is probably temporary from a wrong connection or a missing permission. While a token is
rotated, the API server may refuse it for some seconds; while Roles are replaced, it may refuse single requests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from trainjob.errors import ClusterError, Conflict, NotFound, PermissionDenied, Unauthorized

_MAX_REFUSED_SECONDS = 60.0  # in which refused credentials may be replaced
# Kubernetes 1.36, k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
_OBJECT_PATH = re.compile(
    r"(?P<collection>/api(?:s/[^/]+)?/[^/]+(?:/namespaces/[^/]+)?/(?!namespaces/)[^/]+)/[^/]+(?P<subresource>/[^/]+)?"
)
RequestKind = tuple[str, str]
"""Verb and resource of a request, to which RBAC grants access."""
_OF_ANOTHER_PROCESS = ("", "")


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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an empty memory.

        Args:
            clock: returns monotonic seconds; for tests.
        """
        self._kinds: set[RequestKind] = set()
        self._clock = clock
        self._first_refusal = self._last_refusal = float("-inf")  # of the credentials since they were accepted

    def add(self, kind: RequestKind) -> None:
        """Record a request that was accepted."""
        self._kinds.add(kind)
        self._last_refusal = float("-inf")

    def expect(self) -> None:
        """Count the credentials as accepted before, because another process has used them."""
        self._kinds.add(_OF_ANOTHER_PROCESS)

    def record_error(self, error: ClusterError, kind: RequestKind) -> None:
        """Record the error of a request, and set its `worked_before`.

        404 and 409 show that the request was accepted, because the API server checks credentials and rules first.
        """
        if isinstance(error, NotFound | Conflict):
            self.add(kind)
        elif isinstance(error, Unauthorized):
            error.worked_before = bool(self._kinds) and self._may_be_replaced()
        elif isinstance(error, PermissionDenied):
            error.worked_before = error.retryable = kind in self._kinds

    def _may_be_replaced(self) -> bool:
        """Record a refusal of the credentials, and return whether they may be replaced soon.

        A minute after their first refusal they count as invalid, for example because the account was deleted. Otherwise
        each of several requests would be repeated for a minute.
        """
        now = self._clock()
        if now - self._last_refusal > _MAX_REFUSED_SECONDS:
            self._first_refusal = now
        self._last_refusal = now
        return now - self._first_refusal < _MAX_REFUSED_SECONDS

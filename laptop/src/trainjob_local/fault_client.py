"""Client for the faults of a running laptop cluster, usable from another process."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

__all__ = ["FaultClient"]

_SECONDS = 60.0  # timeout of a request, in seconds
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy: the server is on this machine


class FaultClient:
    """Client that switches faults on; they apply to all clients of the cluster.

    Every method raises `urllib.error.HTTPError` if the cluster refuses the request and `urllib.error.URLError` if it
    does not answer.

    Args:
        server: URL of the API server, see `LocalCluster.server`.
        token: bearer token of the administrator, see `LocalCluster.token`.
    """

    def __init__(self, server: str, token: str) -> None:
        self._url, self._token = f"{server}/faults", token

    def answer(
        self,
        code: int,
        times: int = 1,
        *,
        verb: str = "*",
        resource: str = "*",
        retry_after: int | None = None,
        carried_out: bool = False,
    ) -> None:
        """Answer the next matching requests with an error.

        Args:
            code: HTTP status, for example 429, 500, 503 or 401.
            times: number of requests that get the error.
            verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`; `*` matches every verb.
            resource: plural with its subresource, for example `trainjobs` or `pods/log`; `*` matches every resource.
            retry_after: seconds in the header `Retry-After`; None sends no such header.
            carried_out: execute the request first, so that only its answer is lost.
        """
        wanted = {"code": code, "times": times, "verb": verb, "resource": resource}
        self._send("POST", {"answer": {**wanted, "retry_after": retry_after, "carried_out": carried_out}})

    def set_latency(self, seconds: float) -> None:
        """Delay every request by this many seconds."""
        self._send("POST", {"latency": seconds})

    def drop_watches(self) -> None:
        """Close all open watch streams now."""
        self._send("POST", {"drop_watches": True})

    def expire_watches(self, times: int = 1) -> None:
        """Answer the next watches from a resourceVersion with 410 Expired.

        Args:
            times: number of watches that get the 410.
        """
        self._send("POST", {"expire_watches": times})

    def clear(self) -> None:
        """Switch all faults off."""
        self._send("DELETE", None)

    def _send(self, method: str, body: Mapping[str, Any] | None) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url, data=content, headers=headers, method=method)  # noqa: S310 - the URL is ours
        with _DIRECT.open(request, timeout=_SECONDS):
            pass

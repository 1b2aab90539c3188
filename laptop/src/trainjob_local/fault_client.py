"""Client for the faults of a running laptop cluster, usable from another process."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FaultClient"]

_SECONDS = 60.0  # timeout of a request, in seconds


class FaultClient:
    """Client that switches faults on; they apply to all clients of the cluster.

    Every method raises `urllib.error.HTTPError` if the cluster rejects the request, and `urllib.error.URLError` if it
    sends no response.

    Args:
        server: URL of the API server, see `LocalCluster.server`.
        token: bearer token of the administrator, see `LocalCluster.token`.
        ca_file: certificate of the server's certificate authority, see `LocalCluster.ca_file`.
    """

    def __init__(self, server: str, token: str, ca_file: str | Path) -> None:
        self._url, self._token = f"{server}/faults", token
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))
        # No proxy, because the server is on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)

    def answer(
        self,
        code: int,
        times: int = 1,
        *,
        verb: str = "*",
        resource: str = "*",
        retry_after: int | None = None,
        executed: bool = False,
    ) -> None:
        """Let the cluster send an error to the next matching requests.

        Args:
            code: HTTP status, for example 429, 500, 503 or 401.
            times: number of requests that get the error.
            verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`; `*` matches every verb.
            resource: plural with its subresource, for example `trainjobs` or `pods/log`; `*` matches every resource.
            retry_after: seconds in the header `Retry-After`; None sends no such header.
            executed: whether the cluster executes the request first, so that only its response is lost.
        """
        error = {"code": code, "times": times, "verb": verb, "resource": resource}
        self._send("POST", {"error": {**error, "retry_after": retry_after, "executed": executed}})

    def set_latency(self, seconds: float) -> None:
        """Delay every request by this many seconds."""
        self._send("POST", {"latency": seconds})

    def drop_watches(self) -> None:
        """Break off all open watch streams now, as a lost connection does."""
        self._send("POST", {"drop_watches": True})

    def expire_watches(self, times: int = 1) -> None:
        """Let the cluster send 410 Expired to the next watches from a resourceVersion.

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
        with self._opener.open(request, timeout=_SECONDS):
            pass

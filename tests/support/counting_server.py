"""The laptop cluster's API server, which counts its requests.

It runs without controllers, so nothing acts on the objects that clients write.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

from trainjob_local.apiserver import ApiServer, Registry

TOKEN = "the-admin-token"
_PLURALS = ("trainjobs", "jobsets", "jobs", "pods", "events")


class CountingServer(ApiServer):
    """An API server that counts its requests.

    Attributes:
        request_counts: number of requests, by verb and plural, such as `list trainjobs` or `get pods`.
        max_watches: maximum number of watches that were open at the same time, by plural.
    """

    def __init__(self, registry: Registry, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(registry, admin_token=TOKEN, tls=tls)
        self.request_counts: Counter[str] = Counter()
        self.max_watches: Counter[str] = Counter()
        self._open_watches: Counter[str] = Counter()

    async def _serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        *_, before, last = scope["path"].split("/")
        plural = next((p for p in _PLURALS if p in (before, last)), last)
        watching = b"watch=true" in scope["query_string"]
        verb = scope["method"].lower()
        if verb == "get" and last == plural:
            verb = "watch" if watching else "list"
        self.request_counts[f"{verb} {plural}"] += 1
        self._open_watches[plural] += watching
        self.max_watches[plural] = max(self.max_watches[plural], self._open_watches[plural])
        try:
            await super()._serve(scope, receive, send)
        finally:
            self._open_watches[plural] -= watching

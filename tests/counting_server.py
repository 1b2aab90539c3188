"""The laptop cluster's API server alone, which counts what it is asked; nothing runs what is written to it."""

from __future__ import annotations

from collections import Counter

from trainjob_local.apiserver import ApiServer

TOKEN = "the-admin-token"
_PLURALS = ("trainjobs", "jobsets", "jobs", "pods", "events")


class CountingServer(ApiServer):
    """An API server.

    Attributes:
        asked: how often, by `list trainjobs`, `get pods`, `watch events` and the like.
        most_watches: how many watches of a kind were open at once.
    """

    def __init__(self, registry):
        super().__init__(registry, admin_token=TOKEN)
        self.asked, self.most_watches, self._watches = Counter(), Counter(), Counter()

    async def _serve(self, scope, receive, send):
        *_, before, last = scope["path"].split("/")
        plural = next((p for p in _PLURALS if p in (before, last)), last)
        watching = b"watch=true" in scope["query_string"]
        verb = scope["method"].lower()
        if verb == "get" and last == plural:
            verb = "watch" if watching else "list"
        self.asked[f"{verb} {plural}"] += 1
        self._watches[plural] += watching
        self.most_watches[plural] = max(self.most_watches[plural], self._watches[plural])
        try:
            await super()._serve(scope, receive, send)
        finally:
            self._watches[plural] -= watching

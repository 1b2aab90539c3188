"""A proxy in front of an API server that responds to chosen requests itself.

It forwards the others.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from tests.support.http_proxy import HttpProxy, ProxiedRequest
from trainjob_local import LocalCluster


class ApiServerProxy(HttpProxy):
    """An HTTP server that forwards to a laptop cluster's API server; a context manager.

    Attributes:
        responses: (status code, body) by path, or by method and path.
        replacements: bodies by method and path (`WATCH` is a method of its own). Each replaces the response to one
            request that the API server has executed, with status 200; later responses are the server's own.
        mutations: functions by method that change the body of a request with metadata in place, as a mutating
            admission policy does.
        request_counts: number of requests by method and path.
        accepted_tokens: bearer tokens that the proxy accepts, and replaces by the administrator's. It responds 401 to
            other ones. If it is None, the proxy forwards each token.
        refusals: number of responses 401 of the proxy.
        streams: the API server's responses to the watches that are open.
        kubeconfig_text: the laptop cluster's kubeconfig, with the proxy as its server.
    """

    def __init__(self, laptop: LocalCluster) -> None:
        self.responses: dict[str, tuple[int, bytes]] = {}
        self.replacements: dict[str, list[bytes]] = {}
        self.mutations: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.request_counts: Counter[str] = Counter()
        self.accepted_tokens: set[str] | None = None
        self.refusals = 0
        self.streams: set[urllib3.BaseHTTPResponse] = set()
        super().__init__(laptop.server, pool={"ca_certs": str(laptop.ca_file)})
        kubeconfig = json.loads(laptop.kubeconfig.read_text())
        self._admin_token = kubeconfig["users"][0]["user"]["token"]
        kubeconfig["clusters"][0]["cluster"] = {"server": self.url}
        self.kubeconfig_text = json.dumps(kubeconfig)

    def end_streams(self) -> None:
        """End the open watches.

        An API server does so after some minutes, also if their token has expired.
        """
        for stream in list(self.streams):
            stream.shutdown()

    def respond_to(self, request: ProxiedRequest) -> None:
        path, _, query = request.path.partition("?")
        is_watch = "watch=true" in query
        name = f"{'WATCH' if is_watch else request.command} {path}"
        self.request_counts[name] += 1
        if self.accepted_tokens is not None:
            if request.headers["Authorization"] not in {f"Bearer {token}" for token in self.accepted_tokens}:
                self.refusals += 1
                request.respond_with_error(401, "Unauthorized")
                return
            self.headers["Authorization"] = f"Bearer {self._admin_token}"
        if request.body and request.command in self.mutations:
            content = json.loads(request.body)
            self.mutations[request.command](content)
            request.body = json.dumps(content).encode()
        replaced = self.replacements.get(name)
        if is_watch and not replaced:
            self._stream(request)
            return
        status, answer = self.responses.get(name) or self.responses.get(path) or (0, b"")
        if not status and not is_watch:
            with request.forward() as response:
                status, answer = response.status, response.read()
        request.respond(*((200, replaced.pop(0)) if replaced else (status, answer)))

    def _stream(self, request: ProxiedRequest) -> None:
        """Forward a watch until either side ends it."""
        with request.forward() as response:
            self.streams.add(response)
            request.relay(response, _read_watch(response))
            self.streams.discard(response)


def _read_watch(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    with contextlib.suppress(urllib3.exceptions.HTTPError):  # the proxy has ended it
        yield from response.stream(decode_content=False)

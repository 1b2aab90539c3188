"""HTTP client of the API server for the kubelet; standard library only."""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import ClusterError, ClusterUnreachable
from trainjob_local.objects import GROUP_VERSIONS, Json, WatchHandler

__all__ = ["HttpApi", "client_tls"]

_LOG = logging.getLogger(__name__)
_TIMEOUT = 30.0
_RETRY_SECONDS = 0.5  # seconds before a broken watch is opened again


def client_tls(pki: Path, name: str) -> ssl.SSLContext:
    """Return a TLS context with a client certificate.

    The folder has `ca.crt`, `NAME.crt` and `NAME.key`.
    """
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    return context


class HttpApi:
    """An `ObjectApi` over HTTPS with a client certificate, or over HTTP with a bearer token.

    Args:
        server: URL of the API server, such as `https://127.0.0.1:6443`.
        tls: TLS context of `client_tls`; None for plain HTTP.
        token: bearer token, or empty.
    """

    def __init__(self, server: str, *, tls: ssl.SSLContext | None = None, token: str = "") -> None:
        self._host = urllib.parse.urlsplit(server).netloc
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._stopped = threading.Event()

    @property
    def address(self) -> str:
        """Host and port of the API server."""
        return self._host

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return self._request("GET", _path(resource, namespace, name))

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Return all objects of a resource."""
        items: list[Json] = self._request("GET", _path(resource, namespace))["items"]
        return items

    def create(self, resource: str, body: Json, namespace: str = "") -> Json:
        """Create an object."""
        api_version, kind = GROUP_VERSIONS[resource]
        return self._request("POST", _path(resource, namespace), {"apiVersion": api_version, "kind": kind, **body})

    def patch(self, resource: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """Apply a JSON merge patch."""
        path = _path(resource, namespace, name, subresource)
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete an object."""
        options: Json = {"preconditions": {"uid": uid}} if uid else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation:
            options["propagationPolicy"] = propagation
        self._request("DELETE", _path(resource, namespace, name), options)

    def token(self, namespace: str, service_account: str, spec: Json) -> str:
        """Return a new token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._request("POST", path, body)["status"]["token"])

    def watch(self, resource: str, handler: WatchHandler, *, field_selector: str = "") -> None:
        """List and watch on a new thread until the process ends; list again when the watch breaks."""
        query = {"fieldSelector": field_selector} if field_selector else {}
        arguments = (_path(resource, ""), query, handler)
        threading.Thread(target=self._follow, args=arguments, name=f"watch-{resource}", daemon=True).start()

    def _follow(self, path: str, query: Mapping[str, str], handler: WatchHandler) -> None:
        while True:
            try:
                self._list_and_watch(path, query, handler)
            except (OSError, ClusterError, http.client.HTTPException, ValueError) as error:
                _LOG.warning("the watch of %s failed and is opened again: %s", path, error)
                threading.Event().wait(_RETRY_SECONDS)

    def _list_and_watch(self, path: str, query: Mapping[str, str], handler: WatchHandler) -> None:
        listed = self._request("GET", f"{path}?{urllib.parse.urlencode(query)}")
        for item in listed["items"]:
            _call_handler(handler, "ADDED", item)
        version = listed["metadata"]["resourceVersion"]
        watched = urllib.parse.urlencode({**query, "watch": "1", "resourceVersion": version})
        connection, response = self._open("GET", f"{path}?{watched}", timeout=None)
        try:
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                _call_handler(handler, event["type"], event["object"])
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> Json:
        connection, response = self._open(method, path, body, content_type)
        try:
            found: Json = json.loads(response.read() or b"null")
            return found
        finally:
            connection.close()

    def _open(
        self, method: str, path: str, body: Json | None = None, content_type: str = "", timeout: float | None = _TIMEOUT
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connection(timeout)
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ClusterUnreachable(f"{method} {path}: {error}") from error
        if response.status >= 300:
            text = response.read().decode(errors="replace")
            connection.close()
            raise _to_cluster_error(response.status, text)
        return connection, response

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, timeout=timeout)
        return http.client.HTTPSConnection(self._host, context=self._tls, timeout=timeout)


def _path(resource: str, namespace: str, *parts: str) -> str:
    group_version = GROUP_VERSIONS[resource][0]
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return "/".join([root + within, resource, *(part for part in parts if part)])


def _call_handler(handler: WatchHandler, event_type: str, obj: Json) -> None:
    try:
        handler(event_type, obj)
    except Exception:  # noqa: BLE001 - one object must not end the watch of all
        _LOG.exception("the handler of the event %s %s failed", event_type, obj.get("metadata", {}).get("name"))


def _to_cluster_error(status: int, text: str) -> ClusterError:
    try:
        status_object: Any = json.loads(text)
    except ValueError:
        status_object = None
    if not isinstance(status_object, dict):
        status_object = {}
    message = str(status_object.get("message") or text[:300])
    return ClusterError(message, status=status, reason=str(status_object.get("reason") or ""))

"""Client of the Kubernetes API for a pod, which has no client library.

It is authorized by the token of the pod's service account, which a projected volume holds.
Source: Kubernetes 1.36, https://kubernetes.io/docs/tasks/run-application/access-api-from-pod.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from trainjob.errors import PromotionError

__all__ = ["ChangedMeanwhile", "ClusterApi", "connect"]

Json = dict[str, Any]
_TIMEOUT = 30.0  # seconds for one request
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # seconds between tries
_RETRY_STATUSES = (429, 500, 502, 503, 504)
_MERGE_PATCH = "application/merge-patch+json"


class ChangedMeanwhile(Exception):
    """Error for a write after another process has written: read and decide again."""


class ClusterApi:
    """Client of the namespaced objects of one namespace.

    Args:
        server: URL of the API server.
        folder: folder with the files `token`, `ca.crt` and `namespace`.
    """

    def __init__(self, server: str, folder: Path) -> None:
        self._server, self._token = server, folder / "token"
        self.namespace = (folder / "namespace").read_text().strip()
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def get(self, group: str, plural: str, name: str) -> Json | None:
        """Return an object; None if it does not exist.

        Args:
            group: path of the API group and version, such as `/api/v1` or `/apis/apps/v1`.
            plural: plural of the kind, such as `configmaps`.
            name: name of the object.

        Raises:
            PromotionError: the API server refuses the request, or does not answer.
        """
        return self._call("GET", f"{self._path(group, plural)}/{name}", missing_is_none=True)

    def create(self, group: str, plural: str, body: Mapping[str, Any]) -> Json:
        """Create an object.

        Raises:
            ChangedMeanwhile: it exists.
            PromotionError: as for `get`.
        """
        return self._call("POST", self._path(group, plural), body) or {}

    def merge(self, group: str, plural: str, found: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
        """Change fields of an object, only if nobody has changed it since it was read.

        Args:
            group: path of the API group and version.
            plural: plural of the kind.
            found: the object, as it was read.
            changes: the fields, as an RFC 7386 merge patch.

        Raises:
            ChangedMeanwhile: another process has changed or deleted it.
            PromotionError: as for `get`.
        """
        meta = found["metadata"]
        body = {**changes, "metadata": {"resourceVersion": meta["resourceVersion"]}}
        return self._call("PATCH", f"{self._path(group, plural)}/{meta['name']}", body, content_type=_MERGE_PATCH) or {}

    def wait_for_change(self, group: str, plural: str, found: Mapping[str, Any], seconds: int) -> None:
        """Wait until an object changes, at most for a time.

        A watch that ends early is no error: the caller reads the object again.
        """
        meta = found["metadata"]
        query = f"watch=1&fieldSelector=metadata.name%3D{meta['name']}&resourceVersion={meta['resourceVersion']}"
        path = f"{self._path(group, plural)}?{query}&timeoutSeconds={seconds}"
        started = time.monotonic()
        try:
            with self._opener.open(self._request("GET", path), timeout=seconds + _TIMEOUT) as events:
                if next(iter(events), b""):
                    return
        except (OSError, http.client.HTTPException):
            time.sleep(1.0)  # without the right to watch, or without an answer, the caller polls
        if time.monotonic() - started < 0.5:
            time.sleep(1.0)

    def _path(self, group: str, plural: str) -> str:
        return f"{group}/namespaces/{self.namespace}/{plural}"

    def _request(self, method: str, path: str, body: object = None, content_type: str = "") -> Request:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"  # the kubelet renews it
        content = None if body is None else json.dumps(body).encode()
        return Request(self._server + path, content, headers, method=method)  # noqa: S310 - https

    def _call(
        self, method: str, path: str, body: object = None, *, content_type: str = "", missing_is_none: bool = False
    ) -> Json | None:
        reason = ""
        for pause in _PAUSES:
            try:
                with self._opener.open(self._request(method, path, body, content_type), timeout=_TIMEOUT) as answer:
                    found: Json = json.load(answer)
                    return found
            except HTTPError as refusal:
                with refusal:
                    reason = _read_message(refusal)
                if refusal.code == 404 and missing_is_none:
                    return None
                if refusal.code in (404, 409):
                    raise ChangedMeanwhile(reason) from refusal
                if refusal.code not in _RETRY_STATUSES:
                    raise _to_error(refusal.code, reason) from refusal
            except (OSError, http.client.HTTPException, ValueError) as failure:  # URLError is an OSError
                reason = str(getattr(failure, "reason", failure)) or type(failure).__name__
            time.sleep(pause)
        raise PromotionError(f"the API server does not answer: {reason}", hint="try again later")


def connect(folder: Path) -> ClusterApi:
    """Return a client of the cluster in which this process runs.

    Args:
        folder: folder of the projected volume.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return ClusterApi(f"https://{f'[{host}]' if ':' in host else host}:{port}", folder)


def _read_message(refusal: HTTPError) -> str:
    content = refusal.read()
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")[:300]


def _to_error(status: int, message: str) -> PromotionError:
    if status in (401, 403):
        hint = "apply manifests/promotion in this namespace, or name an account with these permissions in placement"
        return PromotionError(f"the service account of the pod lacks a permission: {message}", hint=hint)
    return PromotionError(f"the API server answers {status}: {message}", hint="")

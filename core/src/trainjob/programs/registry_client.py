"""HTTP client of a model registry, for images that contain no client library of a registry."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trainjob.errors import ExportError

__all__ = ["MLFLOW_LOGIN", "TOKEN_VARIABLE", "RegistryClient", "get_authorization", "parse_object"]

TOKEN_VARIABLE = "REGISTRY_TOKEN"  # noqa: S105 - the name of the variable
"""Environment variable with the token of a Kubeflow Model Registry."""
_TOKEN, _USER, _PASSWORD = (f"MLFLOW_TRACKING_{name}" for name in ("TOKEN", "USERNAME", "PASSWORD"))
MLFLOW_LOGIN = f"{_TOKEN}, or {_USER} and {_PASSWORD}"
"""Environment variables with the login of an MLflow server, for messages."""

_TIMEOUT = 30.0  # seconds for one request
_PAUSES = (0.5, 1.0, 2.0)  # seconds between tries
_RETRY_STATUSES = (429, 500, 502, 503, 504)


class RegistryClient:
    """Client of the REST API of one server.

    Args:
        server: the server's URL.
        api: path of the API on the server.
        authorization: value of the header `Authorization`; empty for no header.
        title: kind of the server for messages, such as `an MLflow server`.
        access_hint: advice for a request that the server refuses with 401 or 403.
    """

    def __init__(self, server: str, api: str, authorization: str, *, title: str, access_hint: str) -> None:
        self._server, self._api, self._title, self._access_hint = server, api, title, access_hint
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if authorization:
            self._headers["Authorization"] = authorization
        self._opener = build_opener(_NoRedirects)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Send a request, and return the response's status and body.

        The request is repeated if the server does not answer, or answers that it is starting or busy.

        Raises:
            ExportError: the server did not answer the last try.
        """
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._server}{self._api}/{path}", content, self._headers, method=method)  # noqa: S310 - http(s)
        status, answer = self._once(request)
        for pause in _PAUSES:
            if status and status not in _RETRY_STATUSES:
                break
            time.sleep(pause)
            status, answer = self._once(request)
        if not status:
            hint = "check its address, and that pods can reach it; the step may be repeated at any time"
            raise ExportError(f"{self._server}: no response: {answer.decode()}", hint=hint)
        return status, answer

    def decode(self, body: bytes) -> dict[str, Any]:
        """Return the JSON object in a response.

        Raises:
            ExportError: the response is no JSON object.
        """
        found = parse_object(body)
        if found is None:
            raise self.wrong_server()
        return found

    def wrong_server(self) -> ExportError:
        """Return the error for a response that another kind of server sent."""
        return ExportError(f"the response of {self._server} is not that of {self._title}", hint="check its address")

    def to_error(self, status: int, body: bytes) -> ExportError:
        """Return the error for a response that refuses the request."""
        message = (parse_object(body) or {}).get("message", body.decode(errors="replace"))
        text = " ".join(str(message).split())[:300]
        if status in (401, 403):
            return ExportError(f"{self._server}: access denied ({status}): {text}", hint=self._access_hint)
        hint = "check its address; the step may be repeated at any time"
        return ExportError(f"{self._server} returned {status}: {text}", hint=hint)

    def _once(self, request: Request) -> tuple[int, bytes]:
        """Send a request once, and return the response's status and body.

        Without a response, the status is 0 and the body is the reason.
        """
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return answer.status, answer.read()
        except HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()
        except (OSError, http.client.HTTPException) as failure:  # URLError is an OSError
            return 0, (str(getattr(failure, "reason", failure)) or type(failure).__name__).encode()


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a response; None if the response is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def get_authorization(environment: Mapping[str, str]) -> str:
    """Return the header `Authorization` from MLflow's variables; empty without a login.

    A user name with a password has precedence over a token, as in MLflow's client.
    """
    user, password, token = (environment.get(name, "") for name in (_USER, _PASSWORD, _TOKEN))
    if user and password:
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    return f"Bearer {token}" if token else ""


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirect: the credentials are only for the given server."""

    def redirect_request(self, *_: Any) -> None:
        """Ignore the redirect, so that the caller gets the redirect response itself."""

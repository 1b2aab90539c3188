"""The HTTP client that sends every request to the Kubernetes API."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, MutableMapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from trainjob.client.accepted_requests import AcceptedRequests, kind_of_request
from trainjob.client.api_errors import (
    error_from_network,
    error_from_status,
    invalid_response,
    not_kubernetes_response,
    refused_certificate,
)
from trainjob.client.backoff import retry
from trainjob.client.cluster_identity import identify_cluster
from trainjob.client.connection import Connection, open_client
from trainjob.client.kubeconfig_fields import KubeconfigRefused
from trainjob.client.response_checks import ResponseCheck, check_json_object
from trainjob.credentials import find_wrong_character, redact_credentials
from trainjob.errors import ClusterError, CredentialPluginFailed, NoClusterConfigured, Unauthorized

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 30.0
_RELOAD_SECONDS = 1.0  # between two loads of the credentials, because a credential plugin may take long
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"


class HttpClient:
    """Client that sends JSON requests with the connection's credentials.

    It returns plain dicts and is safe to use from several threads. After a 401 it reloads the credentials and sends the
    request once more, at most once a second for all threads together. The error of a refused request says whether such
    a request worked before; [trainjob.client.backoff.retry][] then repeats it.

    It uses the kubernetes client for configuration, credentials and their renewal, TLS and the connection pool. It does
    not use that client's generated models, because they drop unknown fields and differ between versions 30 and 36.
    """

    def __init__(self, connection: Connection, *, retry_seconds: float = 0.0) -> None:
        """Load the credentials.

        Args:
            connection: how to reach the cluster.
            retry_seconds: seconds for which a credential plugin that fails is run again.

        Raises:
            NoClusterConfigured: the connection can't be used.
            CredentialPluginFailed: the plugin gives no credentials.
        """
        self.connection = connection
        self._lock = threading.Lock()
        self._last_date = ("", 0.0)  # header of the last response, and when it came
        self._accepted, self._reloaded_at = AcceptedRequests(), float("-inf")
        self._client, self.namespace = retry(lambda: open_client(connection), timeout=retry_seconds)
        self.server = redact_credentials(self._client.configuration.host)  # for messages
        self.identity = identify_cluster(self.server, self._client)

    def request(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        accept: str = _JSON,
        check: ResponseCheck = check_json_object,
    ) -> dict[str, Any]:
        """Send one request and return the JSON of the response.

        Args:
            method: GET, POST, PATCH (sent as a JSON merge patch) or DELETE.
            path: path of the URL, such as `/api/v1/namespaces/default/pods`.
            doing: purpose of the request, for error messages: `list pods in namespace default`.
            query: query parameters; those that are None are left out.
            body: a JSON value.
            accept: header `Accept`, a form of JSON.
            check: returns what is wrong with the JSON, or an empty string.

        Raises:
            InvalidResponse: the status is 2xx, but the body is empty or does not pass the check.
            ClusterError: the status is not 2xx, or there is no response.
        """
        response = self.open(method, path, doing=doing, query=query, body=body, accept=accept)
        try:
            content = self._read(response, doing)
        finally:
            response.release_conn()
        return self._parse_body(content, response.status, doing, check)

    def get_server_time(self) -> float:
        """Return the current Unix time of the API server.

        See [trainjob.client.Cluster.get_server_time][].
        """
        date, received_at = self._last_date
        try:
            return parsedate_to_datetime(date).timestamp() + time.monotonic() - received_at
        except ValueError:  # there is no header, or it is no date
            return time.time()

    def expect_acceptance(self) -> None:
        """Count a refusal as temporary; see [trainjob.client.Cluster.expect_acceptance][]."""
        self._accepted.expect()

    def open(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        accept: str = _JSON,
        read_seconds: float | None = _READ_SECONDS,
    ) -> Any:
        """Send one request and return the open urllib3 response, for streams.

        The caller closes the response.

        Args:
            method: see [request][].
            path: see [request][].
            doing: see [request][].
            query: see [request][].
            body: see [request][].
            accept: see [request][].
            read_seconds: longest silence on the stream, in seconds; None means no limit.

        Raises:
            ClusterError: the status is not 2xx, or there is no response.
        """
        kind = kind_of_request(method, path, watch=bool(query and query.get("watch")))
        arguments = (method, path, query, body, accept, doing, read_seconds)
        client = self._client
        try:
            try:
                response = self._send(client, *arguments)
            except Unauthorized as error:
                response = self._send(self._reload_credentials(client, error), *arguments)
        except ClusterError as error:
            self._accepted.record_error(error, kind)
            raise
        self._accepted.add(kind)
        self._last_date = (response.headers.get("Date", ""), time.monotonic())
        return response

    def _send(
        self,
        client: ApiClient,
        method: str,
        path: str,
        query: Any,
        body: Any,
        accept: str,
        doing: str,
        read_seconds: float | None,
    ) -> Any:
        import urllib3
        from kubernetes.client.exceptions import ApiException

        # Impersonation may need several headers of one name.
        headers = urllib3.HTTPHeaderDict(client.default_headers)
        headers.update({"Accept": accept, "User-Agent": "trainjob"})
        if body is not None:
            headers["Content-Type"] = _MERGE_PATCH if method == "PATCH" else _JSON
        parameters = [(key, _query_text(value)) for key, value in (query or {}).items() if value is not None]
        try:
            client.update_params_for_auth(headers, parameters, ["BearerToken"])  # a plugin may run again
        except KubeconfigRefused as error:  # it was removed while this process runs, for example to upgrade it
            raise CredentialPluginFailed(f"can't {doing}: {error.reason}", hint=error.hint) from None
        _clean_authorization(headers)
        try:
            return client.rest_client.request(
                method,
                client.configuration.host + path,
                query_params=parameters,
                headers=headers,
                body=body,
                _preload_content=False,
                _request_timeout=(_CONNECT_SECONDS, read_seconds),
            )
        except ApiException as error:
            if not error.status:  # the client wraps TLS failures this way
                raise self._network_error(error, doing) from error
            text = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
            raise error_from_status(error.status, text, error.headers or {}, server=self.server, doing=doing) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._network_error(error, doing) from error

    def _network_error(self, error: Exception, doing: str) -> ClusterError:
        """Return the error of a request without a response.

        A certificate that is refused before any response is no moment of its renewal: the connection is wrong.
        """
        refused = None if self._last_date[1] else refused_certificate(error, server=self.server, doing=doing)
        return refused or error_from_network(error, server=self.server, doing=doing)

    def _read(self, response: Any, doing: str) -> bytes:
        import urllib3

        try:
            content: bytes = response.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise error_from_network(error, server=self.server, doing=doing) from error
        return content

    def _parse_body(self, content: bytes, status: int, doing: str, check: ResponseCheck) -> dict[str, Any]:
        if not content.strip():
            raise invalid_response("it is empty", status=status, server=self.server, doing=doing)
        try:
            value: dict[str, Any] = json.loads(content)
        except (ValueError, RecursionError) as error:
            if content.lstrip()[:1] == b"{":  # JSON that was cut off counts as no response
                raise error_from_network(error, server=self.server, doing=doing) from error
            raise not_kubernetes_response(content, doing=doing) from error
        if problem := check(value):
            raise invalid_response(problem, status=status, server=self.server, doing=doing)
        return value

    def _reload_credentials(self, refused: ApiClient, error: Unauthorized) -> ApiClient:
        """Return a client with credentials that were loaded after those of a refused one.

        For example, a token was rotated or a certificate was renewed. If another thread has just loaded them, its
        client is returned.

        Args:
            refused: client whose request was refused.
            error: the error of that request.

        Raises:
            Unauthorized: the given error, because the refused credentials are new, or others can't be loaded now.
        """
        with self._lock:
            if self._client is refused:
                if time.monotonic() - self._reloaded_at < _RELOAD_SECONDS:
                    raise error
                try:
                    self._client, _ = open_client(self.connection)
                except (NoClusterConfigured, CredentialPluginFailed) as problem:  # the file is being replaced
                    raise error from problem
                finally:
                    self._reloaded_at = time.monotonic()
            return self._client

    def close(self) -> None:
        """Close the pooled connections."""
        self._client.rest_client.pool_manager.clear()


def _clean_authorization(headers: MutableMapping[str, str]) -> None:
    """Remove white space around the token, and check its characters.

    A text of several lines in a kubeconfig ends with a line end.

    Raises:
        NoClusterConfigured: the token has a character that no header can have.
    """
    credentials = headers.get("Authorization", "").strip()
    if position := find_wrong_character(credentials.partition(" ")[2]):
        raise NoClusterConfigured(
            f"the token of the connection can't be sent: its character {position} is not printable ASCII",
            hint="write the token into the kubeconfig or the Secret again, without line breaks in it",
        )
    if credentials:
        headers["Authorization"] = credentials


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

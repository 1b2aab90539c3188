"""The HTTP server: authentication, authorization and faults before the handlers.

It runs uvicorn on a thread of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import ssl
import threading
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from trainjob.errors import ClusterError
from trainjob_local.apiserver.access_reviews import REVIEWS, review
from trainjob_local.apiserver.authorization import Action, Authorizer
from trainjob_local.apiserver.discovery import find_document
from trainjob_local.apiserver.faults import Faults
from trainjob_local.apiserver.handlers import Handlers, RequestContext
from trainjob_local.apiserver.http_messages import error_response, json_response, read_json
from trainjob_local.apiserver.log_stream import LogSource
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.request_parsing import RequestInfo, parse_request_info
from trainjob_local.apiserver.resources import by_group_version
from trainjob_local.apiserver.status_errors import StatusError, unauthorized
from trainjob_local.apiserver.tls_server import TlsServer
from trainjob_local.apiserver.tokens import User, service_account_groups
from trainjob_local.apiserver.watches import WatchBroadcaster

__all__ = ["ApiServer"]

_LOG = logging.getLogger(__name__)
_ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
_ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_HEALTH = ("/healthz", "/livez", "/readyz")
_START_SECONDS, _KEEP_ALIVE_SECONDS = 60.0, 120


class ApiServer:
    """HTTP server of a registry on 127.0.0.1.

        server = ApiServer(Registry(), admin_token="…")
        server.start()
        ... server.url ...
        server.stop()

    The caller owns the registry: `stop()` leaves it open.

    Args:
        registry: registry of the objects.
        admin_token: bearer token of the administrator, which permits everything.
        port: TCP port; 0 takes a free one.
        log_source: function that returns logs of pods; None if there is no kubelet.
        tls: certificate and settings of TLS; None serves plain HTTP.

    Attributes:
        faults: faults that tests can switch on.
        port: TCP port of the server; after `start()` it is the port in use.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        admin_token: str,
        port: int = 0,
        log_source: LogSource | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._registry, self._admin_token, self._log_source = registry, admin_token.encode(), log_source
        self._authorizer = Authorizer(registry)
        self.faults, self.port, self._tls = Faults(), port, tls
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._broadcaster: WatchBroadcaster | None = None
        self._handlers: Handlers | None = None
        self._ready = threading.Event()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """URL of the server for a kubeconfig."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    def start(self) -> None:
        """Start the server and wait until it accepts requests.

        Raises:
            ClusterError: the port is in use, or the server did not start within 60 seconds.
        """
        listener = self._listen()
        config = uvicorn.Config(
            self._serve,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.CRITICAL,  # uvicorn logs dropped streams as errors; `_serve` logs the real errors
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        self._server = TlsServer(config, listener, self._tls) if self._tls else uvicorn.Server(config)
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, args=(self._server, listener), name="apiserver", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise ClusterError(f"the API server did not start on {self.address} within {_START_SECONDS:.0f} s")

    def _listen(self) -> socket.socket:
        # With an explicit protocol TCP, asyncio sets TCP_NODELAY. Without it responses wait 40 ms for a delayed ACK.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self.port))
        except OSError as error:
            listener.close()
            raise ClusterError(
                f"can't listen on {self.address}: {error.strerror}",
                hint="another process may use this port; stop that process, or choose another port",
            ) from error
        listener.listen(1024)  # from now on a client that connects waits instead of being refused
        self.port = listener.getsockname()[1]
        return listener

    def _run(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            asyncio.run(self._main(server, listener))
        finally:
            listener.close()

    async def _main(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self._broadcaster = WatchBroadcaster(self._registry, self.faults, asyncio.get_running_loop())
        self._handlers = Handlers(self._registry, self._broadcaster, self._log_source)
        self._ready.set()
        await server.serve(sockets=[listener])

    def stop(self) -> None:
        """End all streams and stop the server; wait up to 10 seconds until its thread ends."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        if self._broadcaster is not None:
            self._broadcaster.close()
        self._thread.join(timeout=10)
        self._server = self._thread = None

    # -- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._handle(request)
        except StatusError as status_error:
            response = error_response(status_error, warnings=getattr(request.state, "warnings", ()))
        except Exception as error:  # noqa: BLE001 - logged
            _LOG.exception("%s %s failed", request.method, request.url.path)
            response = error_response(StatusError(500, "InternalError", f"Internal error occurred: {error}"))
        await response(scope, receive, send)

    async def _handle(self, request: Request) -> Response:
        info = parse_request_info(request.method, request.url.path, request.query_params)
        if info.path == "/faults":
            return await self._handle_faults(request)
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        fault = self.faults.take_error(info.verb, info.target)
        if fault and not fault.executed:
            raise fault.to_status_error()
        user = self._impersonate(request, self._authenticate(request))
        self._authorizer.check(user, info.to_action(request.query_params))
        response = await self._dispatch(request, info, user)
        if fault:
            raise fault.to_status_error()
        return response

    def _authenticate(self, request: Request) -> User:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _ANONYMOUS
        user = self._find_user(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def _find_user(self, token: str) -> User | None:
        """Return the user of a token; None if it is not valid."""
        if hmac.compare_digest(token.encode(), self._admin_token):
            return _ADMIN
        return self._registry.tokens.authenticate(token)

    def _impersonate(self, request: Request, user: User) -> User:
        """Return the user in whose name the request is to be handled, as with `kubectl --as`."""
        name, groups = request.headers.get("impersonate-user", ""), request.headers.getlist("impersonate-group")
        if not name:
            return user
        self._authorizer.check(user, Action("impersonate", resource="users", name=name))
        for group in groups:
            self._authorizer.check(user, Action("impersonate", resource="groups", name=group))
        given = tuple(groups) or service_account_groups(name)
        return User(name, given if "system:authenticated" in given else (*given, "system:authenticated"))

    async def _dispatch(self, request: Request, info: RequestInfo, user: User) -> Response:
        if self._handlers is None:
            raise StatusError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        resource = info.resource
        if resource:
            return await self._handlers.handle(RequestContext(request, info, resource, user))
        group, _ = REVIEWS.get(info.plural, ("", ""))
        if group and (info.group, info.version, info.verb) == (group, "v1", "create"):
            return await review(info.plural, request, user, self._authorizer, self._find_user)
        custom = any(known.custom for known in by_group_version(info.group, info.version))
        if info.plural and not custom and (not info.group or find_document(_group_path(info), self.address)):
            raise StatusError(404, "NotFound", "the server could not find the requested resource", details={})
        return self._serve_document(request, info)

    def _serve_document(self, request: Request, info: RequestInfo) -> Response:
        found: Any = find_document(info.path, self.address)
        if found is None and info.path not in _HEALTH:
            return PlainTextResponse("404 page not found\n", 404)
        if request.method not in ("GET", "HEAD"):
            raise StatusError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
            )
        return PlainTextResponse("ok") if found is None else json_response(found)

    async def _handle_faults(self, request: Request) -> Response:
        if self._authenticate(request) != _ADMIN:
            raise StatusError(
                403, "Forbidden", f'forbidden: User "{self._authenticate(request).name}" cannot use path "/faults"'
            )
        if request.method == "POST":
            self.faults.apply(await read_json(request, "Faults"))
        elif request.method == "DELETE":
            self.faults.clear()
        return json_response(self.faults.to_dict())


def _group_path(info: RequestInfo) -> str:
    return f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"

"""The HTTP server: authentication, authorization and faults before the handlers.

It runs uvicorn on a thread of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from trainjob.errors import ClusterError
from trainjob_local.apiserver.answers import json_answer, read_json, refused
from trainjob_local.apiserver.authorization import Authorizer
from trainjob_local.apiserver.discovery import document
from trainjob_local.apiserver.faults import Faults
from trainjob_local.apiserver.handlers import Call, Handlers
from trainjob_local.apiserver.logstream import LogSource
from trainjob_local.apiserver.refusals import Refusal, unauthorized
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.requests import Asked, asked_for
from trainjob_local.apiserver.resources import by_group_version
from trainjob_local.apiserver.tokens import User
from trainjob_local.apiserver.watching import WatchHub

__all__ = ["ApiServer"]

_LOG = logging.getLogger(__name__)
_ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
_ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_HEALTH = ("/healthz", "/livez", "/readyz")
_REVIEW = ("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
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

    Attributes:
        faults: faults that tests can switch on.
        port: TCP port of the server; after `start()` it is the port in use.
    """

    def __init__(
        self, registry: Registry, *, admin_token: str, port: int = 0, log_source: LogSource | None = None
    ) -> None:
        self._registry, self._admin_token, self._log_source = registry, admin_token.encode(), log_source
        self._authorizer = Authorizer(registry)
        self.faults, self.port = Faults(), port
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._hub: WatchHub | None = None
        self._handlers: Handlers | None = None
        self._ready = threading.Event()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """URL of the server for a kubeconfig."""
        return f"http://{self.address}"

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
        self._server = uvicorn.Server(config)
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
                f"can't listen on {self.address}: {error.strerror}", hint="is it running already?"
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
        self._hub = WatchHub(self._registry, self.faults, asyncio.get_running_loop())
        self._handlers = Handlers(self._registry, self._hub, self._log_source)
        self._ready.set()
        await server.serve(sockets=[listener])

    def stop(self) -> None:
        """End all streams and stop the server; wait up to 10 seconds until its thread ends."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        if self._hub is not None:
            self._hub.close()
        self._thread.join(timeout=10)
        self._server = self._thread = None

    # -- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except Refusal as refusal:
            answer = refused(refusal, warnings=getattr(request.state, "warnings", ()))
        except Exception as error:  # noqa: BLE001 - logged
            _LOG.exception("%s %s failed", request.method, request.url.path)
            answer = refused(Refusal(500, "InternalError", f"Internal error occurred: {error}"))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        asked = asked_for(request.method, request.url.path, request.query_params)
        if asked.path == "/faults":
            return await self._switch_faults(request)
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        fault = self.faults.take(asked.verb, asked.target)
        if fault and not fault.carried_out:
            raise fault.refusal()
        user = self._user(request)
        self._authorizer.check(user, asked.action(request.query_params))
        answer = await self._dispatch(request, asked, user)
        if fault:
            raise fault.refusal()
        return answer

    def _user(self, request: Request) -> User:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _ANONYMOUS
        if hmac.compare_digest(token.strip().encode(), self._admin_token):
            return _ADMIN
        user = self._registry.tokens.user(token.strip())
        if user is None:
            raise unauthorized()
        return user

    async def _dispatch(self, request: Request, asked: Asked, user: User) -> Response:
        if self._handlers is None:
            raise Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        view = asked.resource
        if view:
            return await self._handlers.answer(Call(request, asked, view, user))
        if (asked.group, asked.version, asked.plural) == _REVIEW and asked.verb == "create":
            return await self._handlers.review(request, user)
        custom = any(known.custom for known in by_group_version(asked.group, asked.version))
        if asked.plural and not custom and (not asked.group or document(_group_path(asked), self.address)):
            raise Refusal(404, "NotFound", "the server could not find the requested resource", details={})
        return self._plain(request, asked)

    def _plain(self, request: Request, asked: Asked) -> Response:
        found: Any = document(asked.path, self.address)
        if found is None and asked.path not in _HEALTH:
            return PlainTextResponse("404 page not found\n", 404)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
            )
        return PlainTextResponse("ok") if found is None else json_answer(found)

    async def _switch_faults(self, request: Request) -> Response:
        if self._user(request) != _ADMIN:
            raise Refusal(403, "Forbidden", f'forbidden: User "{self._user(request).name}" cannot use path "/faults"')
        if request.method == "POST":
            self.faults.apply(await read_json(request, "Faults"))
        elif request.method == "DELETE":
            self.faults.clear()
        return json_answer(self.faults.to_dict())


def _group_path(asked: Asked) -> str:
    return f"/apis/{asked.group}/{asked.version}" if asked.group else f"/api/{asked.version}"

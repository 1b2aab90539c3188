"""The process of a laptop cluster, with its API server, controllers and kubelet."""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from trainjob.errors import ClusterError
from trainjob_local import admission, defaults, runtime_admission
from trainjob_local.apiserver import ApiServer, LogRequest, Refusal, Registry
from trainjob_local.controllers.jobs import Backoff
from trainjob_local.controllers.loop import Loop
from trainjob_local.controllers.wiring import all_controllers
from trainjob_local.images import default_images
from trainjob_local.kubelet import Kubelet, KubeletSettings, LogOptions, LogUnavailable
from trainjob_local.objects import Json
from trainjob_local.register import registration
from trainjob_local.registry_api import RegistryApi
from trainjob_local.runtimes import stock_runtimes
from trainjob_local.settings import ClusterSettings

__all__ = ["RunningCluster", "serve"]

_NODE = "laptop"
_LOOK = 0.3  # seconds between checks whether the parent process still exists


class RunningCluster:
    """All parts of a laptop cluster, in this process.

    Args:
        settings: settings of the cluster.

    Attributes:
        server: the API server.
        registry: the registry of all objects.

    Raises:
        ClusterError: the state folder is in use, or its file `port` is not valid.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.registry = Registry(settings.state / "objects", history=settings.history)
        defaults.register(self.registry)
        admission.register(self.registry)
        runtime_admission.register(self.registry)
        token = _kept(settings.state / "admin-token", lambda: secrets.token_urlsafe(32))
        port = settings.port or _kept_port(settings.state / "port")
        self.server = ApiServer(self.registry, admin_token=token, port=port, log_source=self._log)
        self._token = token
        api = RegistryApi(self.registry, lambda: self.server.address)
        remove = settings.state if settings.temporary else None
        self._kubelet = Kubelet(api, _kubelet_settings(settings), remove=remove)
        backoff = Backoff(settings.backoff, settings.backoff_max)
        controllers = all_controllers(self.registry, node=_NODE, folder=self._claim_folder, backoff=backoff)
        self._loop = Loop(self.registry, api, controllers)

    def start(self) -> None:
        """Start all parts; afterwards the API server accepts requests and `kubeconfig` exists.

        Raises:
            ClusterError: the port is in use.
        """
        for runtime in stock_runtimes():
            self._ensure("clustertrainingruntimes", runtime)
        self.server.start()
        _write(self._settings.state / "port", str(self.server.port))
        _write(self._settings.kubeconfig, json.dumps(_kubeconfig(self.server.url, self._token), indent=1))
        self._kubelet.start()
        self._loop.start()

    def stop(self) -> None:
        """Stop all parts and end the pods' processes; the stored objects remain unchanged."""
        self.server.stop()
        self._loop.stop()
        self._kubelet.stop()
        self.registry.close()

    def _ensure(self, resource: str, body: Json) -> None:
        try:
            self.registry.create(resource, body)
        except ClusterError as error:
            if error.status != 409:
                raise

    def _claim_folder(self, claim: Json) -> Path:
        meta = claim["metadata"]
        return _kubelet_settings(self._settings).volume_folder(meta["namespace"], meta["name"], meta["uid"])

    def _log(self, request: LogRequest) -> Iterator[bytes]:
        options = LogOptions(
            follow=request.follow,
            tail=request.tail_lines,
            since=request.since.strftime("%Y-%m-%dT%H:%M:%S.%f") if request.since else "",
            limit=request.limit_bytes,
            timestamps=request.timestamps,
        )
        where, container = (request.namespace, request.pod), request.container
        try:
            return self._kubelet.log(where, container, options, previous=request.previous, cancelled=request.cancelled)
        except LogUnavailable as error:
            reason = "NotFound" if error.code == 404 else "BadRequest"
            raise Refusal(error.code, reason, str(error)) from error


def serve(settings: ClusterSettings, *, parent: int = 0) -> None:
    """Run a cluster until SIGTERM, SIGINT or the end of its parent process.

    The process prints `READY` when the cluster accepts requests. With a parent, it also stops when its standard input
    ends or when the parent has ended. The second check is needed because a process that the parent forked may keep the
    pipe open.

    Args:
        settings: settings of the cluster.
        parent: process ID of the parent, which the cluster must not outlive; 0 for none.

    Raises:
        ClusterError: the state folder or the port is in use.
    """
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    cluster = RunningCluster(settings)
    cluster.start()
    with registration(cluster.server.url, settings.state, settings.kubeconfig, temporary=settings.temporary):
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        while not over.is_set():
            if not parent:
                over.wait()
            elif os.getppid() != parent or _input_ended():
                break
        logging.getLogger(__name__).info("stopping")
        cluster.stop()


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], _LOOK)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def _kubelet_settings(settings: ClusterSettings) -> KubeletSettings:
    return KubeletSettings(
        state=settings.state,
        node=_NODE,
        cpus=settings.cpus,
        memory=settings.memory,
        gpus=settings.gpus,
        backoff=settings.backoff,
        backoff_max=settings.backoff_max,
        images=(*settings.images, *default_images(settings.environments)),
        pod_env=settings.pod_env,
    )


def _kubeconfig(server: str, token: str) -> Json:
    context = {"cluster": "laptop", "user": "admin", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "laptop", "cluster": {"server": server}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "laptop", "context": context}],
        "current-context": "laptop",
    }


def _kept_port(path: Path) -> int:
    text = _kept(path, lambda: "0")
    if not text.isdecimal():
        raise ClusterError(f"{path} holds no port number", hint="remove it: the cluster then takes another port")
    return int(text)


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Return the content of a file; if it does not exist, write it first.

    Args:
        path: the file in the state folder, which an earlier cluster may have written.
        make: function that returns the content of a new file.
    """
    if not path.exists():
        _write(path, make())
    return path.read_text()


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read, with an atomic rename.

    No reader sees an incomplete file.
    """
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)

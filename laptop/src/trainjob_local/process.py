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
from collections.abc import Iterator
from pathlib import Path

from trainjob.errors import ClusterError
from trainjob_local import defaults, runtime_admission, trainjob_admission
from trainjob_local.apiserver import ApiServer, LogRequest, ObjectEvent, Registry, StatusError
from trainjob_local.certificates import create_server_context
from trainjob_local.controllers.controller_manager import ControllerManager
from trainjob_local.controllers.factory import create_controllers
from trainjob_local.controllers.jobs import Backoff
from trainjob_local.controllers.volumes import build_storage_class
from trainjob_local.images import default_images
from trainjob_local.installation import installed_objects, protect_definitions
from trainjob_local.kubelet import Kubelet, KubeletSettings, LogOptions, LogUnavailable
from trainjob_local.objects import Json
from trainjob_local.private_files import make_private_folder, read_or_create, write_private
from trainjob_local.registry_api import RegistryApi
from trainjob_local.running_clusters import register_cluster
from trainjob_local.runtimes import stock_runtimes
from trainjob_local.settings import ClusterSettings

__all__ = ["RunningCluster", "serve"]

_NODE = "laptop"
_CA_CONFIG_MAP = "kube-root-ca.crt"
_POLL_SECONDS = 0.3  # seconds between checks whether the parent process still exists


class RunningCluster:
    """All parts of a laptop cluster, in this process.

    Args:
        settings: settings of the cluster.

    Attributes:
        server: the API server.
        registry: the registry of all objects.

    Raises:
        ClusterError: the state folder is in use or other users can write to it, or one of its files `port`, `ca.crt`
            and `ca.key` is not valid.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        make_private_folder(settings.state)
        volumes = settings.state / "volumes"
        volumes.mkdir(mode=0o700, exist_ok=True)
        volumes.chmod(0o700)  # earlier versions created it with the mode of the umask
        self.registry = Registry(settings.state / "objects", history=settings.history)
        defaults.register_defaults(self.registry)
        trainjob_admission.register_webhooks(self.registry)
        runtime_admission.register_webhooks(self.registry)
        token = read_or_create(settings.state / "admin-token", lambda: secrets.token_urlsafe(32))
        port = settings.port or _read_port(settings.state / "port")
        tls = create_server_context(settings.ca_file, settings.state / "ca.key")
        self.server = ApiServer(self.registry, admin_token=token, port=port, log_source=self._open_log, tls=tls)
        self._token = token
        api = RegistryApi(self.registry, lambda: self.server.address)
        remove = settings.state if settings.temporary else None
        self._kubelet = Kubelet(api, _kubelet_settings(settings), remove=remove)
        backoff = Backoff(settings.backoff, settings.backoff_max)
        controllers = create_controllers(self.registry, node=_NODE, volume_folder=self._claim_folder, backoff=backoff)
        self._controller_manager = ControllerManager(self.registry, api, controllers)

    def start(self) -> None:
        """Start all parts; afterwards the API server accepts requests and `kubeconfig` exists.

        Raises:
            ClusterError: the port is in use.
        """
        self._ensure("storageclasses", build_storage_class())
        for plural, body, namespace in installed_objects():
            self._ensure(plural, body, namespace)
        protect_definitions(self.registry)
        for runtime in stock_runtimes():
            self._ensure("clustertrainingruntimes", runtime)
        self.registry.subscribe(self._publish_ca, resources=("namespaces",))
        self.server.start()
        write_private(self._settings.state / "port", str(self.server.port))
        kubeconfig = _kubeconfig(self.server.url, self._settings.ca_file, self._token)
        write_private(self._settings.kubeconfig, json.dumps(kubeconfig, indent=1))
        self._kubelet.start()
        self._controller_manager.start()

    def stop(self) -> None:
        """Stop all parts and end the pods' processes; the stored objects remain unchanged."""
        self.server.stop()
        self._controller_manager.stop()
        self._kubelet.stop()
        self.registry.close()

    def _ensure(self, resource: str, body: Json, namespace: str = "") -> None:
        try:
            self.registry.create(resource, body, namespace)
        except ClusterError as error:
            if error.status != 409:
                raise

    def _publish_ca(self, event: ObjectEvent) -> None:
        """Write the CA's certificate to a ConfigMap of a new namespace, as real clusters do."""
        if event.type != "ADDED" or "deletionTimestamp" in event.current.body["metadata"]:
            return
        data = {"ca.crt": self._settings.ca_file.read_text()}
        namespace = event.key[1]
        try:
            self.registry.create("configmaps", {"metadata": {"name": _CA_CONFIG_MAP}, "data": data}, namespace)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            self.registry.patch("configmaps", _CA_CONFIG_MAP, {"data": data}, namespace)

    def _claim_folder(self, claim: Json) -> Path:
        meta = claim["metadata"]
        return _kubelet_settings(self._settings).volume_folder(meta["namespace"], meta["name"], meta["uid"])

    def _open_log(self, request: LogRequest) -> Iterator[bytes]:
        options = LogOptions(
            follow=request.follow,
            tail=request.tail_lines,
            since=request.since.strftime("%Y-%m-%dT%H:%M:%S.%f") if request.since else "",
            limit=request.limit_bytes,
            timestamps=request.timestamps,
        )
        where, container = (request.namespace, request.pod), request.container
        try:
            return self._kubelet.open_log(
                where, container, options, previous=request.previous, cancelled=request.cancelled
            )
        except LogUnavailable as error:
            reason = "NotFound" if error.code == 404 else "BadRequest"
            raise StatusError(error.code, reason, str(error)) from error


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
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    cluster = RunningCluster(settings)
    cluster.start()
    with register_cluster(cluster.server.url, settings.state, settings.kubeconfig, temporary=settings.temporary):
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        while not stopped.is_set():
            if not parent:
                stopped.wait()
            elif os.getppid() != parent or _input_ended():
                break
        logging.getLogger(__name__).info("the laptop cluster is stopping")
        cluster.stop()


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
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


def _kubeconfig(server: str, ca_file: Path, token: str) -> Json:
    # A file, because kubernetes (30 and 36) copies `certificate-authority-data` to a temporary file, which remains if
    # the client is killed.
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    context = {"cluster": "laptop", "user": "admin", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "laptop", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "laptop", "context": context}],
        "current-context": "laptop",
    }


def _read_port(path: Path) -> int:
    text = read_or_create(path, lambda: "0")
    if not text.isdecimal():
        raise ClusterError(
            f"{path} contains no port number", hint="remove the file; the cluster then chooses another port"
        )
    return int(text)

"""The laptop cluster as a Python object: a child process that ends with its parent, whatever happens to either."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from trainjob.errors import ClusterError
from trainjob_local.images import Image
from trainjob_local.settings import ClusterSettings

__all__ = ["LocalCluster"]

_STOP_SECONDS = 15.0
_TAIL_LINES = 20


class LocalCluster:
    """A Kubernetes cluster with Kubeflow Trainer, small enough for a test: one process, pods are processes too.

        with LocalCluster(environments={"torchtune": ".venv/torchtune"}) as cluster:
            api = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))

    It ends with the process that started it, also when that or the cluster itself is killed; no process, port or
    temporary
    folder stays behind.

    Args:
        state: folder that keeps objects, claims, logs and the port over restarts; None for a temporary one.
        environments: local environments that stand for upstream's images: `initializer` (huggingface_hub, opendal),
            `torchtune`, and others by a word of their images' names, such as `xgboost`.
        pod_env: environment variables of every pod, such as `HF_ENDPOINT`.
        port: TCP port on 127.0.0.1; 0 takes the one the state folder had, or a free one.
        images: descriptions of further images, looked at first.
        gpus: how many `nvidia.com/gpu` the Node claims to have.
        backoff: first pause before a failed container or pod starts anew, seconds; a real cluster has 10.
        backoff_max: longest such pause, seconds; a real cluster has 300.
    """

    namespace = "default"

    def __init__(
        self,
        state: str | Path | None = None,
        environments: Mapping[str, str | Path] | None = None,
        pod_env: Mapping[str, str] | None = None,
        port: int = 0,
        *,
        images: Sequence[Image] = (),
        gpus: int = 8,
        backoff: float = 1.0,
        backoff_max: float = 4.0,
    ) -> None:
        self._asked = Path(state).absolute() if state is not None else None
        self._environments = {name: Path(folder).absolute() for name, folder in (environments or {}).items()}
        self._options = {
            "pod_env": dict(pod_env or {}),
            "port": port,
            "images": tuple(images),
            "gpus": gpus,
            "backoff": backoff,
            "backoff_max": backoff_max,
        }
        self._settings: ClusterSettings | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: IO[bytes] | None = None  # its end tells the process that this one is gone
        self._log: IO[bytes] | None = None  # open, as a cluster that ends takes its temporary folder along
        self._ready = False

    @property
    def state(self) -> Path:
        """Folder of the cluster: `kubeconfig`, `cluster.log`, `volumes/`, `pods/UID/logs/`."""
        return self._set_up().state

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file with server and token, readable by its owner only."""
        return self._set_up().kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._cluster_entry("clusters", "cluster")["server"])

    @property
    def token(self) -> str:
        """Bearer token of the cluster's administrator."""
        return str(self._cluster_entry("users", "user")["token"])

    @property
    def pid(self) -> int:
        """Id of the cluster's process."""
        return self._running().pid

    def start(self) -> LocalCluster:
        """Starts the cluster and waits until it answers; returns itself.

        Raises:
            ClusterError: it did not start; the message has the last lines of its log.
        """
        if self._process is not None:
            return self
        folder = self._asked or Path(tempfile.mkdtemp(prefix="trainjob-local-"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # pods' Secrets, logs and data will be in it
        self._settings = ClusterSettings(
            state=folder,
            temporary=self._asked is None,
            environments=self._environments,
            **self._options,  # type: ignore[arg-type]
        )
        self._ready = False
        self._log = (folder / "cluster.log").open("a+b")
        self._spawn(f"{self._settings.to_json()}\n".encode(), self._log)
        self.wait_ready()
        return self

    def _spawn(self, settings: bytes, log: IO[bytes]) -> None:
        """Starts the process with its settings in its standard input already.

        So it knows which folder to remove from its first moment on, should this process be killed right then.
        """
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as orders:
            self._orders = os.fdopen(writing, "wb", buffering=0)
            os.set_blocking(writing, False)
            written = self._orders.write(settings) or 0  # all of it, if the pipe holds so much
            os.set_blocking(writing, True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainjob_local", "up", "--supervised", str(os.getpid())],
                stdin=orders,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent; it stops the cluster in its own time
            )
        with contextlib.suppress(OSError):  # it is dead already: wait_ready tells why
            while written < len(settings):
                written += self._orders.write(settings[written:]) or 0

    def wait_ready(self) -> None:
        """Waits until the cluster answers.

        Raises:
            ClusterError: it did not start; the message has the last lines of its log.
        """
        process = self._running()
        if self._ready:
            return
        line = cast("IO[bytes]", process.stdout).readline()
        if line.strip() != b"READY":
            tail = self._log_tail()
            self.stop()
            raise ClusterError(f"the laptop cluster did not start:\n{tail}")
        self._ready = True

    def wait_ended(self) -> None:
        """Waits until the cluster has ended by itself, or because somebody else has ended it.

        Raises:
            ClusterError: it ended in error; the message has the last lines of its log.
        """
        if self._running().wait():
            raise ClusterError(f"the laptop cluster has ended:\n{self._log_tail()}")

    def stop(self) -> None:
        """Stops the cluster and all its pods; a temporary folder goes."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its undertaker ends the pods
            process.wait()
        for pipe in (self._orders, process.stdout, self._log):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        if self._asked is None:
            self._remove(self._set_up().state)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _remove(self, folder: Path) -> None:
        """Removes the temporary folder; what was killed may hold it for a moment."""
        deadline = time.monotonic() + _STOP_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)

    def _set_up(self) -> ClusterSettings:
        if self._settings is None:
            raise ClusterError("the laptop cluster was not started", hint="use it in a with statement, or call start()")
        return self._settings

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ClusterError("the laptop cluster does not run", hint="use it in a with statement, or call start()")
        return self._process

    def _cluster_entry(self, part: str, key: str) -> Mapping[str, object]:
        found = json.loads(self.kubeconfig.read_text())[part][0][key]
        return cast("Mapping[str, object]", found)

    def _log_tail(self) -> str:
        log = cast("IO[bytes]", self._log)
        log.seek(0)
        return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

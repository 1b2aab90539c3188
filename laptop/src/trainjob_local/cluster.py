"""The laptop cluster as a Python object: a child process that ends with its parent."""

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
from trainjob_local.private_files import make_private_folder
from trainjob_local.settings import ClusterSettings

__all__ = ["LocalCluster"]

_STOP_SECONDS = 15.0
_TAIL_LINES = 20


class LocalCluster:
    """A Kubernetes cluster with Kubeflow Trainer in one process, small enough for tests.

    Pods are processes, too.

        with LocalCluster(environments={"torchtune": ".venv/torchtune"}) as cluster:
            api = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))

    The cluster ends with the process that started it, even if that process or the cluster itself is killed. No process,
    port or temporary folder remains.

    Args:
        state: folder that keeps objects, claims, logs, port, token and CA across restarts; None for a temporary folder.
        environments: local environments that replace the Trainer's images, by name: `initializer` (huggingface_hub,
            opendal), `torchtune`, `trl`, `llamafactory`, or a word in the names of other images, such as `xgboost`.
        pod_env: environment variables of every pod, such as `HF_ENDPOINT`.
        port: TCP port on 127.0.0.1; 0 takes the earlier port of the state folder, or a free one.
        images: descriptions of further images, which take precedence over the default ones.
        gpus: number of `nvidia.com/gpu` in the capacity of the Node.
        backoff: first delay before a failed container or pod restarts, in seconds; a real cluster has 10.
        backoff_max: maximum delay, in seconds; a real cluster has 300.
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
        self._requested_state = Path(state).absolute() if state is not None else None
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
        self._control_pipe: IO[bytes] | None = None  # when this pipe closes, the cluster's process ends
        self._log: IO[bytes] | None = None  # kept open, because a cluster that ends removes its temporary folder
        self._ready = False

    @property
    def state(self) -> Path:
        """Folder of the cluster, with `kubeconfig`, `cluster.log`, `volumes/`, `pods/UID/logs/`."""
        return self._require_settings().state

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig file with server, CA and token, which only its owner can read."""
        return self._require_settings().kubeconfig

    @property
    def ca_file(self) -> Path:
        """Path of the CA's certificate, with which clients verify the API server."""
        return self._require_settings().ca_file

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._kubeconfig_entry("clusters", "cluster")["server"])

    @property
    def token(self) -> str:
        """Bearer token of the cluster's administrator."""
        return str(self._kubeconfig_entry("users", "user")["token"])

    @property
    def pid(self) -> int:
        """Process ID of the cluster."""
        return self._require_process().pid

    def start(self) -> LocalCluster:
        """Start the cluster, wait until it is ready, and return it.

        Raises:
            ClusterError: the state folder belongs to another user, or others can write to it; or the cluster did not
                start, and the message has the last 20 lines of its log.
        """
        if self._process is not None:
            return self
        folder = self._requested_state or Path(tempfile.mkdtemp(prefix="trainjob-local-"))
        make_private_folder(folder)  # pods' Secrets, logs and data will be in it
        self._settings = ClusterSettings(
            state=folder,
            temporary=self._requested_state is None,
            environments=self._environments,
            **self._options,  # type: ignore[arg-type]
        )
        self._ready = False
        self._log = (folder / "cluster.log").open("a+b")
        self._spawn(f"{self._settings.to_json()}\n".encode(), self._log)
        self.wait_ready()
        return self

    def _spawn(self, settings: bytes, log: IO[bytes]) -> None:
        """Start the process with its settings already in its standard input.

        If this process is killed right after that, the new process still knows which temporary folder to remove.
        """
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as control_input:
            self._control_pipe = os.fdopen(writing, "wb", buffering=0)
            os.set_blocking(writing, False)
            written = self._control_pipe.write(settings) or 0  # all settings, if they fit into the pipe
            os.set_blocking(writing, True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainjob_local", "up", "--supervised", str(os.getpid())],
                stdin=control_input,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only the parent, which then stops the cluster
            )
        with contextlib.suppress(OSError):  # the process has already ended: wait_ready raises the reason
            while written < len(settings):
                written += self._control_pipe.write(settings[written:]) or 0

    def wait_ready(self) -> None:
        """Wait until the cluster is ready.

        Raises:
            ClusterError: the cluster did not start; the message has the last 20 lines of its log.
        """
        process = self._require_process()
        if self._ready:
            return
        line = cast("IO[bytes]", process.stdout).readline()
        if line.strip() != b"READY":
            tail = self._log_tail()
            self.stop()
            raise ClusterError(f"the laptop cluster did not start:\n{tail}")
        self._ready = True

    def wait_ended(self) -> None:
        """Wait until the cluster has ended, by itself or because another process has stopped it.

        Raises:
            ClusterError: the cluster ended with an error; the message has the last 20 lines of its log.
        """
        if self._require_process().wait():
            raise ClusterError(f"the laptop cluster has ended:\n{self._log_tail()}")

    def stop(self) -> None:
        """Stop the cluster and all its pods, and remove its folder if it is temporary."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # the kubelet's watchdog then ends the pods
            process.wait()
        for pipe in (self._control_pipe, process.stdout, self._log):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        if self._requested_state is None:
            self._remove(self._require_settings().state)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _remove(self, folder: Path) -> None:
        """Remove the temporary folder; retry for up to 15 s, because killed processes may use it."""
        deadline = time.monotonic() + _STOP_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)

    def _require_settings(self) -> ClusterSettings:
        if self._settings is None:
            raise ClusterError("the laptop cluster was not started", hint="use a `with` statement, or call `start()`")
        return self._settings

    def _require_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ClusterError("the laptop cluster is not running", hint="use a `with` statement, or call `start()`")
        return self._process

    def _kubeconfig_entry(self, part: str, key: str) -> Mapping[str, object]:
        found = json.loads(self.kubeconfig.read_text())[part][0][key]
        return cast("Mapping[str, object]", found)

    def _log_tail(self) -> str:
        log = cast("IO[bytes]", self._log)
        log.seek(0)
        return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

"""A real Kubernetes control plane with the real Kubeflow Trainer.

`ControlPlane` has the interface of `LocalCluster`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from process_kubelet.isolation import unavailable_reason as isolation_unavailable
from programs import ARGO, HERE, KSERVE, KUBERNETES, KUEUE, SUPERVISOR, TRAINERS
from trainjob.errors import ClusterError
from trainjob_local.environments import stock_locks
from trainjob_local.images import Image, default_images, images_to_json

__all__ = ["ControlPlane"]

_STOP_SECONDS = 20.0
_TAIL_LINES = 40


class ControlPlane:
    """Kubernetes control plane with JobSet and the Trainer, whose pods are processes.

        with ControlPlane(tmp_path, environments={"torchtune": Path(".venv/torchtune")}) as cluster:
            api = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))

    It consists of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, JobSet and the Trainer. It ends with
    the process that started it, even if that process or one of the components is killed. No process and no port
    remains. Several control planes can run at the same time.

    Args:
        state: new or empty folder; it is retained for the logs in `logs/`.
        trainer: the Trainer's version.
        environments: local environments that replace the Trainer's images, as for `LocalCluster`; this interpreter's
            environment replaces all other images, so that no test downloads packages.
        images: local environments that replace other images; the first match applies, before `environments`.
        pod_env: environment variables of every pod, such as `HF_ENDPOINT`.
        hosts: addresses of host names in isolated containers, which have no cluster DNS; only with `argo`.
        apiserver_args: further arguments of kube-apiserver, such as `--watch-cache=false`.
        argo: whether Argo Workflows runs. Its executor needs fixed paths, so containers are isolated; this needs root.
        kueue: whether Kueue runs, for TrainJobs, JobSets and Jobs that name a queue.
        kserve: whether KServe's CustomResourceDefinitions are installed. KServe's controllers do not run.
    """

    namespace = "default"

    def __init__(
        self,
        state: Path,
        *,
        trainer: str = "2.3",
        environments: Mapping[str, Path] | None = None,
        images: Sequence[Image] = (),
        pod_env: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
        apiserver_args: Sequence[str] = (),
        argo: bool = False,
        kueue: bool = False,
        kserve: bool = False,
    ) -> None:
        self.state, self.trainer = Path(state).absolute(), trainer
        self.argo, self.kueue, self.kserve = argo, kueue, kserve
        self._environments = {name: Path(folder).absolute() for name, folder in (environments or {}).items()}
        self._images, self._pod_env, self._hosts = tuple(images), dict(pod_env or {}), dict(hosts or {})
        self._apiserver_args = tuple(apiserver_args)
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def unavailable_reason(
        trainer: str = "2.3", *, argo: bool = False, kueue: bool = False, kserve: bool = False
    ) -> str | None:
        """Return why a control plane with this Trainer cannot run on this machine; None if it can."""
        if sys.platform != "linux":
            return "the control plane needs Linux"
        if trainer not in TRAINERS:
            return f"there is no control plane with Trainer {trainer}, only with {', '.join(TRAINERS)}"
        if kueue and trainer in ("2.0", "2.1"):  # it writes runtimePatches into TrainJobs
            return f"Kueue 0.17 needs Trainer 2.2 or later, not {trainer}"
        if (trainer == "2.0" or kueue) and not _can_unshare_mounts():
            part = "Kueue" if kueue else "Trainer 2.0"
            return f"{part} needs a mount namespace: run as root, or on a machine with user namespaces"
        extras = ((ARGO, argo), (KUEUE, kueue), (KSERVE, kserve))
        wanted = [SUPERVISOR, KUBERNETES, TRAINERS[trainer], *(extra for extra, requested in extras if requested)]
        if missing := [name for programs in wanted for name in programs.list_missing()]:
            return f"the control plane is not built ({', '.join(missing)}): run `make controlplane`"
        return isolation_unavailable() if argo else None

    @property
    def kubeconfig(self) -> Path:
        """Path of an administrator's kubeconfig, which only its owner can read."""
        return self.state / "kubeconfig"

    @property
    def ca_file(self) -> Path:
        """Certificate of the certificate authority of the API server."""
        return self.state / "pki" / "ca.crt"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.info["server"])

    @property
    def info(self) -> dict[str, Any]:
        """Addresses and processes of the running control plane, from `cluster.json`.

        The keys are `server`, `etcd` (its URL), `ports` and `pids` of the components, and `pid` of the supervisor.
        """
        return cast("dict[str, Any]", json.loads((self.state / "cluster.json").read_text()))

    def start(self) -> ControlPlane:
        """Start the control plane, wait about 7 s until it accepts a TrainJob, and return it.

        Raises:
            ClusterError: it cannot run on this machine, or did not start; the message has the last lines of the log.
        """
        if self._process is not None:
            return self
        if reason := self.unavailable_reason(self.trainer, argo=self.argo, kueue=self.kueue, kserve=self.kserve):
            raise ClusterError(reason)
        self.state.mkdir(parents=True, exist_ok=True)
        self._write_images()
        self._write_hosts()
        with (self.state / "controlplane.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only the parent, which then stops the components
            )
        if not cast("IO[bytes]", self._process.stdout).readline().startswith(b"READY "):
            self.stop()
            raise ClusterError(f"the control plane did not start:\n{self._log_tail()}")
        return self

    def find_failure(self) -> str | None:
        """Return why the control plane has ended, with the end of its log; None while it runs."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"the control plane ended with code {self._process.returncode}:\n{self._log_tail()}"

    def stop(self) -> None:
        """Stop all processes; the state folder is retained."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel then kills the components; the kubelet still ends the pods
            process.wait()
        cast("IO[bytes]", process.stdout).close()

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        folders = {"state": self.state, "kubernetes": KUBERNETES.folder, "trainer": TRAINERS[self.trainer].folder}
        kubelet = [sys.executable, str(HERE / "run_kubelet.py"), f"--images={self._images_file}"]
        if self.argo:
            folders["argo"] = ARGO.folder
            kubelet += ["--isolate", f"--hosts={self._hosts_file}", f"--path={ARGO.folder}"]
        if self.kueue:
            folders["kueue"] = KUEUE.folder
        if self.kserve:
            folders["kserve"] = KSERVE.folder
        return [
            str(SUPERVISOR.folder / "controlplane"),
            "up",
            *(f"--{name}={folder}" for name, folder in folders.items()),
            *(f"--apiserver-arg={argument}" for argument in self._apiserver_args),
            f"--parent={os.getpid()}",
            "--",
            *kubelet,
        ]

    @property
    def _images_file(self) -> Path:
        return self.state / "images.json"

    @property
    def _hosts_file(self) -> Path:
        return self.state / "hosts"

    def _write_hosts(self) -> None:
        """Write the `/etc/hosts` of isolated containers: this machine's, and the given names."""
        lines = [Path("/etc/hosts").read_text(), *(f"{address} {name}\n" for name, address in self._hosts.items())]
        self._hosts_file.write_text("".join(lines))

    def _write_images(self) -> None:
        """Write the kubelet's configuration of images: their local environments and variables.

        Only the file's owner can read it.
        """
        own = dict.fromkeys(stock_locks(), Path(sys.prefix))
        if "torchtune" in self._environments:
            del own["trl"]  # images of PyTorch then run in the environment torchtune
        environments = {**own, **self._environments}
        images = [*self._images, *default_images(environments)]
        with_pod_env = [replace(image, env={**self._pod_env, **image.env}) for image in images]
        self._images_file.touch(mode=0o600)
        self._images_file.write_text(images_to_json(with_pod_env))

    def _log_tail(self) -> str:
        lines = (self.state / "controlplane.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def _can_unshare_mounts() -> bool:
    """Return whether this user can start a process with its own mount namespace.

    cmd/controlplane/trainer20.go and kueue.go need it.
    """
    mapped = [] if os.getuid() == 0 else ["--map-root-user"]
    try:
        return subprocess.run(["unshare", "--mount", *mapped, "true"], stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False

"""The clusters that can run the suite: how each is started, and what a test has to know about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = {
    **{name: ROOT / ".venv" / name for name in ("torchtune", "initializer")},
    "runtimes": Path(sys.prefix),  # no case needs JAX, XGBoost or an mpirun
}


@dataclass(frozen=True)
class Target:
    """A running cluster.

    Attributes:
        backend: its name on the command line and in the report.
        kubeconfig: file whose current context has all permissions.
        trainer: the Trainer's API version, as `(2, 3)`.
        pods_are_processes: whether a pod's command runs as a process of this machine, without an image.
        etcd: URL of etcd if a test can reach it, otherwise empty.
    """

    backend: str
    kubeconfig: str
    trainer: tuple[int, int]
    pods_are_processes: bool = True
    etcd: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that can be sent to another test process."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Target:
        """Return the target with the fields that `to_dict` returned."""
        return Target(**{**values, "trainer": tuple(values["trainer"])})


class BackendUnavailable(Exception):
    """This back end cannot run on this machine; the text has the reason and what to do."""


@dataclass(frozen=True)
class Backend:
    """A kind of cluster.

    Attributes:
        trainer: the Trainer's API version that it will have.
        start: starts the cluster, which runs until the context ends.
    """

    trainer: tuple[int, int]
    start: Callable[[str, Path], AbstractContextManager[Target]]


@contextmanager
def _laptop(name: str, folder: Path) -> Iterator[Target]:
    from trainjob_local import LocalCluster

    with LocalCluster(folder, environments=ENVIRONMENTS) as cluster:
        yield Target(name, str(cluster.kubeconfig), (2, 3))


def _control_plane(trainer: str) -> Backend:
    version = (int(trainer[0]), int(trainer[2:]))

    @contextmanager
    def start(name: str, folder: Path) -> Iterator[Target]:
        from control_plane import ControlPlane

        if reason := ControlPlane.unavailable_reason(trainer):
            raise BackendUnavailable(reason)
        with ControlPlane(folder, trainer=trainer, environments=ENVIRONMENTS) as cluster:
            yield Target(name, str(cluster.kubeconfig), version, etcd=cluster.info["etcd"])

    return Backend(version, start)


@contextmanager
def _docker(name: str, folder: Path) -> Iterator[Target]:
    """Start k3s with the Trainer's own chart, as the compose file in `k3s` says."""
    if not shutil.which("docker"):
        raise BackendUnavailable("no container engine is installed")
    for question in ("info", "compose version"):
        if subprocess.run(["docker", *question.split()], capture_output=True).returncode:
            raise BackendUnavailable(f"`docker {question}` fails: no container engine is running")
    from tests.conformance.k3s import run_k3s

    with run_k3s(folder) as kubeconfig:
        yield Target(name, str(kubeconfig), (2, 3), pods_are_processes=False)


@contextmanager
def _user_cluster(name: str, _folder: Path) -> Iterator[Target]:
    """Return the cluster that the user names; tests create and delete namespaces in it."""
    if not (path := os.environ.get("CONFORMANCE_KUBECONFIG")):
        raise BackendUnavailable("set CONFORMANCE_KUBECONFIG to a kubeconfig")
    major, minor = os.environ.get("CONFORMANCE_TRAINER", "2.3").split(".")[:2]
    yield Target(name, path, (int(major), int(minor)), pods_are_processes=False)


BACKENDS: dict[str, Backend] = {
    "laptop": Backend((2, 3), _laptop),
    **{f"controlplane-{version}": _control_plane(version) for version in ("2.3", "2.2", "2.1", "2.0")},
    "docker": Backend((2, 3), _docker),
    "kubeconfig": Backend((2, 3), _user_cluster),
}

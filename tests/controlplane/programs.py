"""Which programs a control plane is made of, from which `go.mod`, and where they lie once they are built.

The name of a program's folder ends with a digest of what it is built from: a changed version never runs old programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BUILT", "HERE", "KUBERNETES", "SUPERVISOR", "TRAINERS", "Programs", "Trainer", "folders_in_use"]

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / ".cache" / "controlplane"
_RENDERED = ("jobset.json", "trainer.json", "runtimes.json", "jobset-config.yaml")
_SUPERVISOR_SOURCES = tuple(sorted((HERE / "cmd" / "controlplane").glob("*.go")))


@dataclass(frozen=True)
class Programs:
    """Programs that are built into one folder.

    Attributes:
        name: begins the folder's name.
        packages: name of each program -> folder of its `go.mod` and its Go package.
        sources: further files that the result depends on.
        files: what lies in the folder besides the programs.
    """

    name: str
    packages: Mapping[str, tuple[Path, str]]
    sources: Sequence[Path] = ()
    files: Sequence[str] = field(default=())

    @property
    def folder(self) -> Path:
        """Where they are, or will be."""
        modules = sorted({module for module, _ in self.packages.values()})
        inputs = [module / name for module in modules for name in ("go.mod", "go.sum")]
        digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in (*inputs, *self.sources)))
        return BUILT / f"{self.name}-{digest.hexdigest()[:12]}"

    def missing(self) -> list[str]:
        """Names the programs and files that are not built yet."""
        folder = self.folder
        return [name for name in (*self.packages, *self.files) if not (folder / name).exists()]


@dataclass(frozen=True)
class Trainer:
    """A version of Kubeflow Trainer with the JobSet that its own manifests name.

    Attributes:
        trainer: folder of the `go.mod` that fixes the Trainer's version.
        jobset: the same for JobSet; another one where the two do not compile together.
    """

    trainer: Path
    jobset: Path

    def programs(self, version: str) -> Programs:
        """Its controllers, and the manifests that they ship."""
        packages = {
            "trainer-controller-manager": (
                self.trainer,
                "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            ),
            "jobset": (self.jobset, "sigs.k8s.io/jobset"),
        }
        rendering = HERE / "cmd" / "controlplane" / "render.go"
        return Programs(f"trainer-{version}", packages, sources=(rendering,), files=_RENDERED)


KUBERNETES = Programs(
    "kubernetes",
    {
        "etcd": (HERE, "go.etcd.io/etcd/server/v3"),
        **{
            name: (HERE, f"k8s.io/kubernetes/cmd/{name}")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    },
)
SUPERVISOR = Programs("supervisor", {"controlplane": (HERE, "./cmd/controlplane")}, sources=_SUPERVISOR_SOURCES)
_VERSIONS = HERE / "versions"
TRAINERS = {
    version: trainer.programs(version)
    for version, trainer in {
        "2.3": Trainer(HERE, HERE),
        "2.2": Trainer(_VERSIONS / "2.2", _VERSIONS / "2.2" / "jobset"),
        "2.1": Trainer(_VERSIONS / "2.1", _VERSIONS / "2.1"),
        "2.0": Trainer(_VERSIONS / "2.0", _VERSIONS / "2.0"),
    }.items()
}


def folders_in_use() -> set[Path]:
    """The folders that the present versions are built into."""
    return {programs.folder for programs in (KUBERNETES, SUPERVISOR, *TRAINERS.values())}

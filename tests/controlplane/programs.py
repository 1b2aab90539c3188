"""The programs of a control plane, their `go.mod` files, and the folders of their builds.

The name of a program's folder ends with a digest of its inputs. So a changed version never runs old programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "ARGO",
    "BUILD_ROOT",
    "HERE",
    "KSERVE",
    "KUBECTL",
    "KUBERNETES",
    "KUEUE",
    "SUPERVISOR",
    "TRAINERS",
    "Link",
    "ProgramSet",
    "TrainerModules",
    "list_used_folders",
]

HERE = Path(__file__).resolve().parent
BUILD_ROOT = HERE.parents[1] / ".cache" / "controlplane"
_RENDERED_FILES = ("jobset.json", "trainer.json", "runtimes.json", "jobset-config.yaml")
_RENDER_SOURCE = HERE / "cmd" / "controlplane" / "render.go"
_SUPERVISOR_SOURCES = tuple(sorted((HERE / "cmd" / "controlplane").glob("*.go")))


@dataclass(frozen=True)
class Link:
    """A symbolic link of a repository that its Go module lacks and needs to compile.

    Attributes:
        module: path of the module.
        name: path of the link in the module.
        target: path to which the link points.
    """

    module: str
    name: str
    target: str


@dataclass(frozen=True)
class ProgramSet:
    """Programs that are built, and manifests that are rendered, into one folder.

    Attributes:
        name: first part of the folder's name.
        packages: folder of the `go.mod` and Go package of each program, by the program's name; empty for none.
        sources: further files that the result depends on.
        manifests: folder of the `go.mod` and module whose manifests `controlplane render` reads, by its flag.
        files: files that `controlplane render` writes into the folder, in this order.
        link: symbolic link that the build adds to a module; None for none.
    """

    name: str
    packages: Mapping[str, tuple[Path, str]]
    sources: Sequence[Path] = ()
    manifests: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    files: Sequence[str] = ()
    link: Link | None = None

    @property
    def folder(self) -> Path:
        """Folder for the built programs."""
        modules = sorted({module for module, _ in (*self.packages.values(), *self.manifests.values())})
        inputs = [module / name for module in modules for name in ("go.mod", "go.sum")]
        parts = [path.read_bytes() for path in (*inputs, *self.sources)]
        digest = hashlib.sha256(b"\0".join([*parts, repr(self.link).encode()]))
        return BUILD_ROOT / f"{self.name}-{digest.hexdigest()[:12]}"

    def list_missing(self) -> list[str]:
        """Return the names of the programs and files that are not built yet."""
        folder = self.folder
        return [name for name in (*self.packages, *self.files) if not (folder / name).exists()]


@dataclass(frozen=True)
class TrainerModules:
    """A version of Kubeflow Trainer with the JobSet that its own manifests name.

    Attributes:
        trainer: folder of the `go.mod` that fixes the Trainer's version.
        jobset: the same for JobSet; another folder if the two do not compile together.
    """

    trainer: Path
    jobset: Path

    def to_program_set(self, version: str) -> ProgramSet:
        """Return the programs of the controllers, and the manifests that they ship."""
        packages = {
            "trainer-controller-manager": (
                self.trainer,
                "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            ),
            "jobset": (self.jobset, "sigs.k8s.io/jobset"),
        }
        manifests = {
            "trainer": (self.trainer, "github.com/kubeflow/trainer/v2"),
            "jobset": (self.jobset, "sigs.k8s.io/jobset"),
        }
        return ProgramSet(
            f"trainer-{version}", packages, sources=(_RENDER_SOURCE,), manifests=manifests, files=_RENDERED_FILES
        )


KUBERNETES = ProgramSet(
    "kubernetes",
    {
        "etcd": (HERE, "go.etcd.io/etcd/server/v3"),
        **{
            name: (HERE, f"k8s.io/kubernetes/cmd/{name}")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    },
)
SUPERVISOR = ProgramSet("supervisor", {"controlplane": (HERE, "./cmd/controlplane")}, sources=_SUPERVISOR_SOURCES)
_VERSIONS = HERE / "versions"
KUBECTL = ProgramSet("kubectl", {"kubectl": (_VERSIONS / "kubectl", "k8s.io/kubernetes/cmd/kubectl")})
TRAINERS = {
    version: trainer.to_program_set(version)
    for version, trainer in {
        "2.3": TrainerModules(HERE, HERE),
        "2.2": TrainerModules(_VERSIONS / "2.2", _VERSIONS / "2.2" / "jobset"),
        "2.1": TrainerModules(_VERSIONS / "2.1", _VERSIONS / "2.1"),
        "2.0": TrainerModules(_VERSIONS / "2.0", _VERSIONS / "2.0"),
    }.items()
}
_ARGO_MODULE = "github.com/argoproj/argo-workflows/v4"
ARGO = ProgramSet(
    "argo-4.0",
    {name: (_VERSIONS / "argo", f"{_ARGO_MODULE}/cmd/{name}") for name in ("workflow-controller", "argoexec")},
    sources=(_RENDER_SOURCE, _RENDER_SOURCE.with_name("argo.go")),
    manifests={"argo": (_VERSIONS / "argo", _ARGO_MODULE)},
    files=("argo.json",),
    link=Link(_ARGO_MODULE, "workflow/executor/osspecific/signal_linux.go", "signal_darwin.go"),
)
_KUEUE_MODULE = "sigs.k8s.io/kueue"
KUEUE = ProgramSet(
    "kueue-0.17",
    {"kueue": (_VERSIONS / "kueue", f"{_KUEUE_MODULE}/cmd/kueue")},
    sources=(_RENDER_SOURCE, _RENDER_SOURCE.with_name("kueue.go")),
    manifests={"kueue": (_VERSIONS / "kueue", _KUEUE_MODULE)},
    files=("kueue-config.yaml", "kueue.json"),
)
KSERVE = ProgramSet(
    "kserve-0.16",
    {},
    sources=(_RENDER_SOURCE, _RENDER_SOURCE.with_name("kserve.go")),
    manifests={"kserve": (_VERSIONS / "kserve", "github.com/kserve/kserve")},
    files=("kserve.json",),
)


def list_used_folders() -> set[Path]:
    """Return the folders for the builds of the present versions."""
    return {programs.folder for programs in (KUBERNETES, KUBECTL, SUPERVISOR, ARGO, KUEUE, KSERVE, *TRAINERS.values())}

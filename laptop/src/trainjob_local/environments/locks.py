"""Locked requirements of the environments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["EnvironmentLock", "stock_locks"]

_REQUIREMENTS = Path(__file__).parents[1] / "requirements"
_MB_PER_MINUTE = 600  # 10 MB/s


@dataclass(frozen=True)
class EnvironmentLock:
    """The packages of an environment.

    Attributes:
        name: name of the environment.
        requirements: requirements file with the exact version and the hashes of each package.
        packages: requirements that are installed in addition, without hashes; the lock constrains their dependencies.
        min_python: lowest Python version on which the environment works, such as `3.11`.
        download_mb: size of the download in MB (1,000,000 bytes), on Linux for x86_64; 0 if unknown.
        cpu_download_mb: size of the download with the CPU build of torch; 0 if the lock has no torch.
    """

    name: str
    requirements: Path
    packages: tuple[str, ...] = ()
    min_python: str = "3.10"
    download_mb: int = 0
    cpu_download_mb: int = 0

    @property
    def announcement(self) -> str:
        """Text about the size and the duration of the download; empty if the size is unknown."""
        if not self.download_mb:
            return ""
        text = f"{_format_size(self.download_mb)}, {_format_duration(self.download_mb)} at 10 MB/s"
        if self.cpu_download_mb:
            less = f"{_format_size(self.cpu_download_mb)}, {_format_duration(self.cpu_download_mb)}"
            text += f" ({less} if PyTorch's index of CPU builds can be reached)"
        return f"download of about {text}"

    def to_json(self) -> str:
        """Return the lock as JSON, for another process."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> EnvironmentLock:
        """Return the lock in a JSON text of `to_json`."""
        fields = json.loads(text)
        packages, requirements = tuple(fields["packages"]), Path(fields["requirements"])
        return cls(**{**fields, "requirements": requirements, "packages": packages})


def stock_locks() -> Mapping[str, EnvironmentLock]:
    """Return the locks of the environments that replace stock images, by name.

    `initializer` replaces the dataset and model initializers, `torchtune` the TorchTune trainer, `trl` PyTorch's image,
    `llamafactory` LLaMA-Factory's own, and `runtimes` those of XGBoost, JAX and DeepSpeed's MPI.
    """
    # Sizes: the wheels of the locks for CPython 3.11 on x86_64, November 2026. A CPU build of torch has about 200 MB.
    locks = (
        EnvironmentLock("initializer", _REQUIREMENTS / "initializer.txt", download_mb=120),
        EnvironmentLock("torchtune", _REQUIREMENTS / "torchtune.txt", download_mb=2860, cpu_download_mb=330),
        EnvironmentLock("trl", _REQUIREMENTS / "trl.txt", min_python="3.11", download_mb=2840, cpu_download_mb=310),
        EnvironmentLock(
            "llamafactory", _REQUIREMENTS / "llamafactory.txt", min_python="3.11", download_mb=3040, cpu_download_mb=510
        ),
        EnvironmentLock("runtimes", _REQUIREMENTS / "runtimes.txt", download_mb=150),
    )
    return {lock.name: lock for lock in locks}


def _format_size(megabytes: int) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"


def _format_duration(megabytes: int) -> str:
    minutes = round(megabytes / _MB_PER_MINUTE)
    return f"{minutes} minutes" if minutes > 1 else "a minute" if minutes else "some seconds"

"""CPU builds of torch, which need none of the 2.5 GB of CUDA libraries.

For Linux, PyPI has only builds for CUDA. PyTorch's own index has builds for CPUs, with versions such as `2.13.0+cpu`.
Their hashes are not in the locks, so they are installed before the other packages, whose hashes are still checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["CPU_TORCH_INDEX", "require_cpu_torch", "without_torch"]

CPU_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's index of CPU builds, which `uv pip install --torch-backend cpu` uses as well."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TORCH = re.compile(r"torch==(?P<version>[^\s;\\]+)(?P<marker>\s*;[^\\\n]*)?")
_CUDA = re.compile(r"(nvidia|cuda)-.+|triton")


def require_cpu_torch(requirements: str) -> str:
    """Return requirements for the CPU build of a lock's torch; empty if the lock has no torch.

    Args:
        requirements: text of the lock.
    """
    found = _TORCH.finditer("\n".join(_entries(requirements)))
    return "".join(f"torch=={one['version']}+cpu{(one['marker'] or '').rstrip()}\n" for one in found)


def without_torch(requirements: str) -> str:
    """Return a lock without torch and the libraries that only its builds for GPUs need.

    Args:
        requirements: text of the lock.
    """
    return "".join(entry for entry in _entries(requirements) if not _is_torch_part(entry))


def _is_torch_part(entry: str) -> bool:
    found = _NAME.match(entry)
    name = found[0].lower().replace("_", "-") if found else ""
    return name == "torch" or _CUDA.fullmatch(name) is not None


def _entries(requirements: str) -> Iterator[str]:
    """Yield each requirement with its hashes and comments, which are indented."""
    entry = ""
    for line in requirements.splitlines(keepends=True):
        if entry and not line[0].isspace():
            yield entry
            entry = ""
        entry += line
    yield entry

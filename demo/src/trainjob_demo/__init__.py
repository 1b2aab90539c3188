"""The command `trainjob demo`: a chain of TrainJobs on this machine."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("trainjob-demo")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

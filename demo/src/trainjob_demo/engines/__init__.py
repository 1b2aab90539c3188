"""Workflow engines that run the demo's chain, each in its own Python environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainjob_demo.engines.airflow import Airflow
from trainjob_demo.engines.engine import Engine, EngineCommand
from trainjob_demo.engines.kfp import KubeflowPipelines

__all__ = ["ENGINES", "Engine", "EngineCommand"]

ENGINES: Mapping[str, Callable[[Path, Path], Engine]] = {"airflow": Airflow, "kfp": KubeflowPipelines}
"""Engines by name: functions of the engine's environment and of the demo's folder."""

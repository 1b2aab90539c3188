"""The interface of a workflow engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Engine", "EngineCommand"]


@dataclass(frozen=True)
class EngineCommand:
    """A command that runs a workflow.

    Attributes:
        words: program and arguments.
        environment: variables in addition to those of this process.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """Return the command without the folders of its programs and files."""
        return " ".join(Path(word).name for word in self.words)


class Engine(Protocol):
    """A workflow engine in its own Python environment.

    Attributes:
        log: file for the output of the workflow's run.
        workflows: folder of the demo's workflow files for this engine.
    """

    @property
    def log(self) -> Path: ...  # noqa: D102

    @property
    def workflows(self) -> Path: ...  # noqa: D102

    def prepare(self) -> None:
        """Create what the engine needs."""

    def command(self, workflow: Path, kubeconfig: Path) -> EngineCommand:
        """Return the command that runs a workflow to its end.

        Args:
            workflow: file of the DAG or the pipeline; its name is that of the workflow.
            kubeconfig: kubeconfig of the cluster.
        """

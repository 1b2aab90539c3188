"""Kubeflow Pipelines: the compiled pipeline, run by `kfp.local` on this machine."""

from __future__ import annotations

from pathlib import Path

from trainjob_demo.engines.engine import EngineCommand

__all__ = ["RUN_PIPELINE", "KubeflowPipelines"]

RUN_PIPELINE = Path(__file__).with_name("run_pipeline.py")


class KubeflowPipelines:
    """`kfp.local` in its own environment.

    Args:
        environment: Python environment with kfp and this project's components.
        folder: the demo's folder, for the log.
    """

    workflows = Path(__file__).parents[1] / "pipelines"

    def __init__(self, environment: Path, folder: Path) -> None:
        self._programs = environment / "bin"
        self.log = folder / "kfp.log"

    def prepare(self) -> None:
        """Do nothing: the environment has all that is needed."""

    def command(self, workflow: Path, kubeconfig: Path) -> EngineCommand:
        """Return the command that compiles the pipeline and runs it.

        Args:
            workflow: file of the pipeline.
            kubeconfig: kubeconfig of the cluster.
        """
        variables = {"KUBECONFIG": str(kubeconfig), "TRAINJOB_RUN_ID": "demo"}
        return EngineCommand((str(self._programs / "python"), str(RUN_PIPELINE), str(workflow), "run"), variables)

"""Runner of the pipelines in `pipelines.py` against a laptop cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainjob.client import Cluster
from trainjob.manifest import labels
from trainjob_demo.engines.kfp import RUN_PIPELINE
from trainjob_local import LocalCluster

PIPELINES = Path(__file__).resolve().parent / "pipelines.py"


class PipelineRunner:
    """Runner of pipelines with one run ID, so that a second start is the same run."""

    def __init__(self, laptop: LocalCluster, folder: Path, run_id: str, **environment: str) -> None:
        """Create a runner; it writes the outputs of the pipelines below the folder."""
        self.id, self._folder = run_id, folder
        variables = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": run_id}
        self._environment = {**os.environ, **variables, **environment}

    def start_pipeline(self, name: str, **arguments: object) -> subprocess.Popen[str]:
        """Start a pipeline, and return its process."""
        words = [f"{key}={value}" for key, value in arguments.items()]
        return subprocess.Popen(
            [sys.executable, str(RUN_PIPELINE), str(PIPELINES), name, str(self._folder), *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, name: str, **arguments: object) -> tuple[int, str]:
        """Run a pipeline to its end, and return its exit code and log."""
        process = self.start_pipeline(name, **arguments)
        log, _ = process.communicate()
        return process.returncode, log

    def list_trainjobs(self, cluster: Cluster) -> list[dict[str, Any]]:
        """Return the TrainJobs of this run."""
        return cluster.list_trainjobs("default", f"{labels.RUN}={self.id}")

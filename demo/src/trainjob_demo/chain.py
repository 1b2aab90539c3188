"""One run of a workflow, and the model that it exports."""

from __future__ import annotations

from pathlib import Path

from trainjob.client import Cluster
from trainjob_demo.engines import Engine
from trainjob_demo.errors import DemoError
from trainjob_demo.paths import display_path
from trainjob_demo.processes import run_process
from trainjob_demo.view import ChainView

__all__ = ["find_export_folder", "run_chain"]


def run_chain(engine: Engine, workflow: Path, cluster: Cluster, kubeconfig: Path) -> ChainView:
    """Run a workflow to its end, and show its TrainJobs meanwhile.

    Args:
        engine: engine that runs the workflow.
        workflow: file of the DAG or the pipeline.
        cluster: client of the cluster on which it runs.
        kubeconfig: the cluster's kubeconfig.

    Returns:
        The view, with the TrainJobs of the workflow.

    Raises:
        ClusterError: the cluster does not answer.
        DemoError: the workflow failed; the message has the error of the failed TrainJob.
    """
    _create_claim(cluster)
    engine.prepare()
    command = engine.command(workflow, kubeconfig)
    print(f"running {command} (its log: {display_path(engine.log)})", flush=True)
    with (
        ChainView(cluster, "default") as view,
        run_process(command.words, engine.log, command.environment) as process,
    ):
        code = process.wait()
    if code:
        raise DemoError.from_program(str(command), code, engine.log)
    return view


def _create_claim(cluster: Cluster) -> None:
    """Create the claim `tickets`, which some workflows share over their runs."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "tickets", "namespace": "default"}
    cluster.create_claim({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


def find_export_folder(cluster: Cluster, view: ChainView, state: Path) -> Path | None:
    """Return the export folder on the volume that the steps shared.

    The result is None if they shared no volume, or exported no model to it.

    Args:
        cluster: client of the cluster on which the workflow ran.
        view: view of the workflow's TrainJobs.
        state: folder of the cluster.
    """
    name = view.find_claim()
    claim = cluster.get_claim(name, "default") if name else None
    if claim is None:
        return None
    [volume] = state.glob(f"**/volumes/*{claim['metadata']['uid'][:8]}*")
    return volume / "export" if (volume / "export" / "config.json").exists() else None

"""The demo's hub and engines in the environments of this checkout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.kubernetes_client import Client
from tests.support.mlflow_server import TRACKING_PYTHON
from trainjob_demo.engines import ENGINES, Engine
from trainjob_demo.tickets_hub import make_hub
from trainjob_local import LocalCluster
from trainjob_local.demo.hub import HubServer

ROOT = Path(__file__).resolve().parents[2]
# The claim that examples share over their runs.
_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "tickets"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
ALL_ENVIRONMENTS = {name: ROOT / ".venv" / name for name in ("initializer", "torchtune", "trl", "llamafactory")}
ENVIRONMENTS = {name: ALL_ENVIRONMENTS[name] for name in ("initializer", "torchtune")}


def make_demo_hub(folder: Path) -> None:
    """Write the demo's tiny model and tickets as the hub has them."""
    make_hub(folder, ENVIRONMENTS["torchtune"])


@contextmanager
def laptop_with_demo_hub(folder: Path) -> Iterator[LocalCluster]:
    """Start a laptop cluster whose pods fetch the demo's model and tickets.

    It has the claim `tickets`, and the environments of every framework and of the experiment trackers. The folder `hub`
    has model and tickets.
    """
    make_demo_hub(folder / "hub")
    with (
        HubServer(folder / "hub") as hub,
        LocalCluster(
            folder / "cluster",
            environments=ALL_ENVIRONMENTS,
            pod_env={"HF_ENDPOINT": hub.url, "TRAINJOB_TRACKING_PYTHON": str(TRACKING_PYTHON)},
        ) as cluster,
    ):
        with closing(Client.from_kubeconfig(str(cluster.kubeconfig))) as client:
            client.create(_CLAIM, "default")
        yield cluster


def demo_engine(name: str) -> Engine:
    """Return the engine in its environment, with the database that all tests share."""
    folder = ROOT / ".cache" / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    return ENGINES[name](ROOT / ".venv" / name, folder)


def example_workflow(engine: str, name: str) -> Path:
    """Return the file of an example's DAG or pipeline."""
    return ROOT / "examples" / engine / f"{name}.py"

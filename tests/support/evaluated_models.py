"""A laptop cluster with the claim `tickets`, which has a good and a bad model of the tickets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes_client import Client
from trainjob_local import LocalCluster

__all__ = ["laptop_with_models"]
_ROOT = Path(__file__).resolve().parents[2]
_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "tickets"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@contextmanager
def laptop_with_models(folder: Path, hub: Path, trained: Path, task: str) -> Iterator[tuple[LocalCluster, Path]]:
    """Start the cluster, whose images have the harness.

    Args:
        folder: folder of the cluster.
        hub: folder of the demo's hub.
        trained: folder of the good model.
        task: task file of the harness.

    Yields:
        The cluster, and the folder of the volume. It has the models `better` and `worse`, tickets and a task file.
    """
    with LocalCluster(folder, environments={"pytorch": _ROOT / ".venv" / "lm_eval"}) as cluster:
        client = Client.from_kubeconfig(str(cluster.kubeconfig))
        uid = client.create(_CLAIM, "default")["metadata"]["uid"]
        client.close()
        volume = cluster.state / "volumes" / f"default_tickets_{uid[:8]}"
        shutil.copytree(hub / "datasets/demo/tickets", volume / "dataset")
        shutil.copytree(trained, volume / "better")
        shutil.copytree(hub / "models/demo/tiny-llama", volume / "worse")
        (volume / "tasks").mkdir()
        (volume / "tasks" / "tickets.yaml").write_text(task)
        yield cluster, volume

"""A cluster in containers: k3s and Kubeflow Trainer's own chart, started by pytest-docker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pytest_docker.plugin import DockerComposeExecutor, Services

from tests.conformance.built_jobsets import TORCHTUNE_RUNTIMES
from tests.support.kubernetes_client import Client, path_of
from tests.support.trainjobs import train_job

COMPOSE = Path(__file__).parent / "k3s" / "compose.yaml"
SECONDS = 600  # images of k3s, JobSet and the Trainer are pulled


@contextmanager
def run_k3s(folder: Path) -> Iterator[Path]:
    """Run the cluster until the context ends, and return an administrator's kubeconfig.

    Args:
        folder: the folder for the kubeconfig, which only its owner can read.
    """
    compose = DockerComposeExecutor("docker compose", str(COMPOSE), f"trainjob-{os.getpid()}")
    services = Services(compose)
    try:  # pytest-docker's own context leaves containers behind if they do not start
        compose.execute("up --quiet-pull --wait")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        content = compose.execute("exec -T server cat /etc/rancher/k3s/k3s.yaml", ignore_stderr=True).decode()
        kubeconfig.write_text(content.replace("127.0.0.1:6443", f"127.0.0.1:{services.port_for('server', 6443)}"))
        with closing(Client.from_kubeconfig(str(kubeconfig))) as client:
            services.wait_until_responsive(lambda: _is_ready(client), SECONDS, 2.0)
        yield kubeconfig
    finally:
        compose.execute("down --volumes --timeout 1")


def _is_ready(client: Client) -> bool:
    """Return whether the Trainer's webhooks respond and its runtimes exist."""
    jobs = [train_job("true"), *(train_job(runtime=runtime) for runtime in TORCHTUNE_RUNTIMES.values())]
    return all(client.request("POST", path_of("TrainJob", "default"), job, dryRun="All").ok for job in jobs)

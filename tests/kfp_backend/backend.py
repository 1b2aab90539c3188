"""The back end of Kubeflow Pipelines 2.17 on a real control plane."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from control_plane import ControlPlane
from tests.kfp_backend import manifests, service_pods
from tests.kfp_backend.build import list_missing_programs, list_problems, program_folder
from tests.support import shipped_manifests
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.s3_server import S3Server
from trainjob_local.images import Image

__all__ = ["KfpBackend"]

ROOT = Path(__file__).resolve().parents[2]
ARGO_CONFIG = "workflow-controller-configmap"
RUNNER = "pipeline-runner"
IMAGE_WITHOUT_CODE = "python-without-trainjob"
"""Image with the packages that the components import, but not the components themselves."""
HTTP_PORT, STORE_PORT = 8888, 9000
SECONDS = 120.0
_HOST_NAMES = ("mysql", "metadata-grpc-service", "ml-pipeline", "seaweedfs")


class KfpBackend:
    """The back end of Kubeflow Pipelines, with Argo and Trainer, as a context manager.

        with KfpBackend(Path("pipelines"), tmp_path) as backend:
            backend.client().create_run_from_pipeline_package("pipeline.yaml")

    The programs are the original ones. They run in pods of the control plane, with the service accounts, permissions
    and environment of KFP's own manifests, so they end with the control plane. The object store runs in this process.
    All of them listen on one loopback address, which belongs to this process, on KFP's own ports.

    Args:
        source: checkout of kubeflow/pipelines.
        state: new or empty folder for the control plane; it is retained for the logs.
        environments: local environments that replace the Trainer's images.
        pod_env: environment variables of every pod.
    """

    namespace = manifests.NAMESPACE

    def __init__(
        self,
        source: Path,
        state: Path,
        *,
        environments: Mapping[str, Path] | None = None,
        pod_env: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.address = source.absolute(), _own_loopback_address()
        names = [service_pods.GRPC_HOST, service_pods.GATEWAY_HOST]
        names += [f"{name}{suffix}" for name in _HOST_NAMES for suffix in _name_suffixes(self.namespace)]
        self.control_plane = ControlPlane(
            state,
            argo=True,
            environments=environments,
            images=_images(program_folder(self.source)),
            pod_env=pod_env,
            hosts=dict.fromkeys(names, self.address),
        )
        self.store = S3Server(
            buckets=("mlpipeline",), access_key="minio", address=(self.address, STORE_PORT)
        )  # the key of KFP's manifests
        self._stack = contextlib.ExitStack()

    @staticmethod
    def unavailable_reason(source: str) -> str | None:
        """Return why the back end cannot run on this machine; None if it can."""
        problems = [*list_problems(source), *list_missing_programs(source)]
        return "; ".join(problems) if problems else ControlPlane.unavailable_reason(argo=True)

    @property
    def kubeconfig(self) -> Path:
        """Path of an administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    def find_failure(self) -> str | None:
        """Return why the control plane has ended, with the end of its log; None while it runs."""
        return self.control_plane.find_failure()

    @property
    def url(self) -> str:
        """URL of the API server of Kubeflow Pipelines."""
        return f"http://{self.address}:{HTTP_PORT}"

    def client(self) -> Any:
        """Return a new `kfp.Client`."""
        import kfp

        return kfp.Client(host=self.url, namespace=self.namespace)

    def __enter__(self) -> KfpBackend:
        with self._stack:
            self._stack.enter_context(self.store)
            self._stack.enter_context(self.control_plane)
            self.cluster = Client.from_kubeconfig(str(self.kubeconfig))
            self._stack.callback(self.cluster.close)
            self._install()
            self._start_pods()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _install(self) -> None:
        """Apply KFP's manifests, its Argo configuration and this project's permissions."""
        for crd in manifests.load_crds(self.source):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            answer = self.cluster.request("POST", path, crd)
            assert answer.ok, answer.message
        self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        for found in manifests.load_installation(self.source):
            if found["kind"] in manifests.INSTALLED_KINDS:
                self.cluster.create(found, self.namespace)
        shipped_manifests.apply_roles(self.cluster, self.namespace, "kfp", RUNNER)
        config = manifests.load_argo_config(self.source)
        self.cluster.patch("ConfigMap", "argo", ARGO_CONFIG, {"data": config})
        log = self.control_plane.state / "logs" / "argo.log"
        # The controller logs one value of the configuration that it has applied.
        wait_until(lambda: "executorImagePullPolicy=IfNotPresent" in log.read_text(), SECONDS)

    def _start_pods(self) -> None:
        deployments = {
            found["metadata"]["name"]: found
            for found in manifests.load_installation(self.source)
            if found["kind"] == "Deployment"
        }
        server = service_pods.api_server(deployments["ml-pipeline"], self.source, self.address)
        for pod in (service_pods.database(self.address), service_pods.metadata_store(self.address), server):
            self.cluster.create(pod, self.namespace)
        try:
            wait_until(self._is_healthy, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: the API server of KFP\n{self._read_service_log('ml-pipeline')}") from None
        agent = service_pods.persistence_agent(deployments["ml-pipeline-persistenceagent"])
        controller = service_pods.scheduledworkflow(deployments["ml-pipeline-scheduledworkflow"])
        for pod in (agent, controller):
            self.cluster.create(pod, self.namespace)

    def _is_healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(f"{self.url}/apis/v2beta1/healthz", timeout=2) as response:
            return bool(response.status == 200)
        return False

    def _read_service_log(self, pod: str) -> str:
        return self.cluster.log(self.namespace, pod)[-4000:]


def _own_loopback_address() -> str:
    """Return a loopback address that no other process's back end uses."""
    high, low = divmod(os.getpid(), 250)
    return f"127.17.{high % 250 + 1}.{low + 1}"


def _name_suffixes(namespace: str) -> list[str]:
    """Return what may follow a service's name in a host name of a pod of its namespace."""
    return ["", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"]


def _images(programs: Path) -> list[Image]:
    packages = ROOT / ".venv" / "launcher"  # the packages of the components' image
    component = Image(
        match="kfp-trainjob",
        environment=packages,
        python_path=(ROOT / "core" / "src", ROOT / "components" / "kfp" / "src"),
        env={"PYTHONUNBUFFERED": "1"},
    )
    return [
        Image(match="kubeflow/kfp-", environment=programs),
        Image(match="ml_metadata_store_server", environment=ROOT / ".venv" / "metadata_store"),
        Image(match="mysql", environment=Path(sys.prefix)),
        Image(match=IMAGE_WITHOUT_CODE, environment=packages, env={"PYTHONUNBUFFERED": "1"}),
        component,
    ]

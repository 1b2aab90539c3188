"""The pods of KFP's services: as its Deployments describe them, with the commands for a loopback address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kfp_backend.build import find_program

__all__ = [
    "GATEWAY_HOST",
    "GRPC_HOST",
    "api_server",
    "database",
    "metadata_store",
    "persistence_agent",
    "scheduledworkflow",
]

Object = dict[str, Any]

# The API server listens on the value of --rpcPortFlag, and its gateway connects to "localhost" followed by that value
# (2.17, backend/src/apiserver/main.go). An address would listen on one interface, but the gateway could not connect.
GRPC_HOST = "grpc"
"""Host name for the API server's own gRPC address."""
GATEWAY_HOST = f"localhost{GRPC_HOST}"
"""Host name by which the API server's gateway connects to it."""


def database(address: str) -> Object:
    """Return the pod of the database.

    It has no tables of accounts, so the account of KFP's manifests has all permissions without a password. Its character
    set is the default of KFP's MySQL 8.4.
    """
    folder = "/var/lib/mysql"
    files = [f"--datadir={folder}", f"--socket={folder}/socket"]
    server = [find_program("mariadbd") or "mariadbd", "--no-defaults", "--user=root", *files]
    options = [f"--bind-address={address}", "--port=3306", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0"]
    options.append("--character-set-server=utf8mb4")
    return _data_pod("mysql", "mysql", [*server, *options], folder)


def metadata_store(address: str) -> Object:
    """Return the pod of the metadata store."""
    program = Path(__file__).with_name("metadata_store.py")
    command = ["python", str(program), f"{address}:8080", "/var/lib/metadata/metadata.db"]
    return _data_pod("metadata-grpc", "tfx-oss-public/ml_metadata_store_server", command, "/var/lib/metadata")


def api_server(deployment: Object, source: Path, address: str) -> Object:
    """Return the pod of the API server."""
    config = source / "backend" / "src" / "apiserver" / "config"
    ports = [f"--rpcPortFlag={GRPC_HOST}:8887", f"--httpPortFlag={address}:8888"]
    visualization = {"HOST": address, "PORT": "8889"}  # not installed; the kubelet gives these variables of a Service
    env = {f"ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_{key}": value for key, value in visualization.items()}
    env["OBJECTSTORECONFIG_REGION"] = "us-east-1"  # the client requires one
    return _deployed_pod(deployment, ["apiserver", f"--config={config}", *ports, "-logtostderr=true"], env)


def persistence_agent(deployment: Object) -> Object:
    """Return the pod of the persistence agent, with the arguments of its image."""
    script = (
        "exec persistence-agent --logtostderr=true --namespace=${NAMESPACE} --numWorker=${NUM_WORKERS} "
        "--ttlSecondsAfterWorkflowFinish=${TTL_SECONDS_AFTER_WORKFLOW_FINISH} --logLevel=${LOG_LEVEL}"
    )
    return _deployed_pod(deployment, ["sh", "-c", script], {})


def scheduledworkflow(deployment: Object) -> Object:
    """Return the pod of the ScheduledWorkflow controller, with the arguments of its image."""
    script = (
        "exec scheduledworkflow --logtostderr=true --namespace=${NAMESPACE} --logLevel=${LOG_LEVEL} "
        "--clientQPS=${CLIENT_QPS} --clientBurst=${CLIENT_BURST} --metricsPort=${METRICS_PORT} "
        "--recurringRunResyncIntervalSeconds=${RESYNC_INTERVAL_SECONDS}"
    )
    return _deployed_pod(deployment, ["sh", "-c", script], {})


def _deployed_pod(deployment: Object, command: list[str], env: dict[str, str]) -> Object:
    """Return a Deployment's pod.

    It has no init containers, because these only wait for other services.
    """
    template = deployment["spec"]["template"]
    [container] = template["spec"]["containers"]
    variables = [*container.get("env", []), *({"name": name, "value": value} for name, value in env.items())]
    spec = {key: value for key, value in template["spec"].items() if key != "initContainers"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": deployment["metadata"]["name"]},
        "spec": {**spec, "containers": [{**container, "command": command, "env": variables}]},
    }


def _data_pod(name: str, image: str, command: list[str], folder: str) -> Object:
    """Return a pod with a folder for its data, which ends with the pod."""
    mount = {"name": "data", "mountPath": folder}
    container = {"name": name, "image": image, "command": command, "volumeMounts": [mount]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]},
    }

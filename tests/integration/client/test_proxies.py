"""Clients reach a server on loopback directly, also if the environment names a proxy for everything."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from tests.integration.local.cluster_client import ClusterClient, train_job
from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterUnreachable
from trainjob_local import FaultClient

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY")


@pytest.fixture
def proxy(monkeypatch):
    """Yield the first lines of all requests that reach a proxy, which the environment names."""
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        lines.append(client.recv(65536).partition(b"\r\n")[0].decode())
                        client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        for name in NAMES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield lines
        listener.shutdown(socket.SHUT_RDWR)


def test_the_client_uses_no_proxy_for_loopback(laptop, proxy):
    content = json.loads(laptop.kubeconfig.read_text())
    for server in (laptop.server, laptop.server.replace("127.0.0.1", "localhost")):
        content["clusters"][0]["cluster"]["server"] = server
        with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(content)))) as cluster:
            assert isinstance(cluster.list_trainjobs("default"), list)
    assert proxy == []


def test_the_client_uses_the_proxy_for_other_servers(proxy):
    """kubernetes 30 does not read the environment at all."""
    import kubernetes

    if int(kubernetes.__version__.partition(".")[0]) < 31:
        pytest.skip("this version of kubernetes uses no proxy of the environment")
    with (
        contextlib.closing(Cluster(Connection(server="https://api.example.invalid"), retry_seconds=0.0)) as cluster,
        pytest.raises(ClusterUnreachable),
    ):
        cluster.list_trainjobs("default")
    assert {line.rpartition(" ")[0] for line in proxy} == {"CONNECT api.example.invalid:443"}


def test_commands_and_faults_use_no_proxy(laptop, proxy):
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    for arguments in (["list"], ["local", "status"]):
        command = [sys.executable, "-m", "trainjob", *arguments]
        assert subprocess.run(command, env=environment, capture_output=True, timeout=300).returncode == 0
    FaultClient(laptop.server, laptop.token, laptop.ca_file).clear()
    assert proxy == []


def test_pods_with_a_proxy_exempt_loopback(laptop, unique):
    """A pod whose spec names a proxy reaches the API server and a loopback Hub without it."""
    kube = ClusterClient(laptop.kubeconfig)
    job = train_job(unique, "sh", "-c", 'echo "$NO_PROXY|$no_proxy"')
    job["spec"]["trainer"]["env"] = [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
        {"name": "no_proxy", "value": ".example.org"},
    ]
    kube.create_job(job)
    kube.wait_for(unique, lambda found: (found.get("status") or {}).get("conditions"))
    exempt = ".example.org,127.0.0.1,localhost"
    assert kube.read_log(kube.get_pod(unique).metadata.name) == f"{exempt}|{exempt}\n"
    kube.close()

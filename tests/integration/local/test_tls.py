"""The laptop cluster's port speaks TLS, with a certificate authority in the state folder."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import stat
from urllib.parse import urlsplit

import pytest

from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterError, NoClusterConfigured
from trainjob_local import LocalCluster
from trainjob_local.certificates import create_server_context


def connect(laptop):
    """Return a TCP connection to the API server."""
    return socket.create_connection(("127.0.0.1", urlsplit(laptop.server).port), timeout=60)


def list_trainjobs(connection):
    """Send a request over a connection."""
    with contextlib.closing(Cluster(connection, retry_seconds=0.0)) as cluster:
        cluster.list_trainjobs("default")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_certificate_is_valid_for_loopback(laptop, name):
    context = ssl.create_default_context(cafile=laptop.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    with context.wrap_socket(connect(laptop), server_hostname=name) as opened:
        assert opened.version() == "TLSv1.3"


def test_only_the_owner_can_read_key_and_token(laptop):
    for name in ("ca.key", "admin-token", "kubeconfig"):
        assert stat.S_IMODE((laptop.state / name).stat().st_mode) == 0o600
    cluster = json.loads(laptop.kubeconfig.read_text())["clusters"][0]["cluster"]
    assert cluster == {"server": laptop.server, "certificate-authority": str(laptop.state / "ca.crt")}


def test_the_certificate_authority_survives_a_restart(tmp_path):
    kubeconfigs = []
    for _ in range(2):
        with LocalCluster(tmp_path) as cluster:
            kubeconfigs.append(cluster.kubeconfig.read_text())
            list_trainjobs(Connection(kubeconfig_text=kubeconfigs[0]))
    assert kubeconfigs[0] == kubeconfigs[1]


def test_another_certificate_authority_is_rejected(laptop, tmp_path):
    create_server_context(tmp_path / "ca.crt", tmp_path / "ca.key")
    content = json.loads(laptop.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.crt")
    with pytest.raises(NoClusterConfigured, match="certificate verify failed"):
        list_trainjobs(Connection(kubeconfig_text=json.dumps(content)))


def test_a_damaged_certificate_authority_is_reported(tmp_path):
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_text("damaged")
    with pytest.raises(ClusterError, match=r"ca\.crt and .*ca\.key contain no certificate and private key") as raised:
        create_server_context(tmp_path / "ca.crt", tmp_path / "ca.key")
    assert "remove both files" in raised.value.hint


def test_plain_http_gets_a_response_that_names_the_cause(laptop):
    """The response arrives whole, even if the client is still sending."""
    with connect(laptop) as client:
        client.sendall(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000)
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert received.startswith(b"HTTP/1.0 403 Forbidden\r\n")
    assert b"Client sent an HTTP request to an HTTPS server." in received


def test_a_kubeconfig_of_an_earlier_version_is_explained(laptop):
    content = json.loads(laptop.kubeconfig.read_text())
    content["clusters"][0]["cluster"] = {"server": laptop.server.replace("https:", "http:")}
    with pytest.raises(NoClusterConfigured, match="serves https, and the connection names it with http://") as raised:
        list_trainjobs(Connection(kubeconfig_text=json.dumps(content)))
    assert "trainjob local status" in raised.value.hint


def test_connections_without_a_request_do_not_block_others(laptop):
    with connect(laptop), connect(laptop) as ended:
        ended.shutdown(socket.SHUT_WR)
        assert ended.recv(1) == b""
        list_trainjobs(Connection(kubeconfig=str(laptop.kubeconfig)))

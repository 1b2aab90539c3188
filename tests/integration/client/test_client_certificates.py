"""Tests of certificates and keys that a kubeconfig or a credential plugin gives as text.

They reach TLS without a file that remains after the process, however it ends.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from trainjob.client import Cluster, Connection
from trainjob.errors import NoClusterConfigured

STATUS = b'{"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        """Return 401 unless the certificate is accepted, as a real API server does."""
        subject = dict(pair for ((*pair,),) in (self.connection.getpeercert() or {}).get("subject", ()))
        accepted = subject.get("organizationalUnitName") in self.server.accepted_users
        content = b'{"gitVersion": "v1.36.0"}' if accepted else STATUS
        self.send_response(200 if accepted else 401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


class CertificateServer(ThreadingHTTPServer):
    """HTTPS server that accepts clients by the organizational unit of their certificate."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.authority, self.accepted_users = trustme.CA(), {"old"}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        self.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}"

    def issue(self, user):
        """Return a client certificate and its key."""
        issued = self.authority.issue_cert("client", organization_name="test", organization_unit_name=user)
        return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


@pytest.fixture(scope="module")
def _server():
    with CertificateServer() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def server(_server):
    _server.accepted_users = {"old"}
    return _server


def encode(content):
    return base64.b64encode(content).decode()


def kubeconfig(server, user, **more):
    cluster = {"server": server.url, "certificate-authority-data": encode(server.authority.cert_pem.bytes()), **more}
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }


def inline(server, name="old"):
    """Return a user with an inline certificate and key."""
    certificate, key = server.issue(name)
    return {"client-certificate-data": encode(certificate), "client-key-data": encode(key)}


def plugin(server, name="old"):
    """Return a user with a plugin that prints a certificate and its key."""
    certificate, key = server.issue(name)
    version = "client.authentication.k8s.io/v1"
    status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
    response = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return {"exec": {"apiVersion": version, "command": "printf", "args": ["%s", json.dumps(response)]}}


USERS = {"inline": inline, "plugin": plugin}


@pytest.fixture(params=USERS)
def user(request, server):
    return USERS[request.param](server)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Return the folder for temporary files, which has to stay empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_request_with_a_certificate_writes_no_file(server, user, temporary_folder):
    with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(kubeconfig(server, user))))) as cluster:
        cluster.open_connection()
        assert cluster.namespace == "team"
    assert list(temporary_folder.iterdir()) == []


def test_a_renewed_certificate_is_loaded_after_a_401(server, tmp_path, temporary_folder):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(server, inline(server))))
    with contextlib.closing(Cluster(Connection(kubeconfig=str(path)))) as cluster:
        cluster.open_connection()
        server.accepted_users = {"new"}
        path.write_text(json.dumps(kubeconfig(server, inline(server, "new"))))
        cluster.open_connection()
    assert list(temporary_folder.iterdir()) == []


def test_a_certificate_in_a_file_and_a_key_as_text_work_together(server, tmp_path):
    certificate, key = server.issue("old")
    (tmp_path / "certificate").write_bytes(certificate)
    user = {"client-certificate": str(tmp_path / "certificate"), "client-key-data": encode(key)}
    with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(kubeconfig(server, user))))) as cluster:
        cluster.open_connection()


def test_files_named_in_a_kubeconfig_are_relative_to_it(server, tmp_path):
    certificate, key = server.issue("old")
    (tmp_path / "certificate").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(server, {"client-certificate": "certificate", "client-key": "key"})))
    with contextlib.closing(Cluster(Connection(kubeconfig=str(path)))) as cluster:
        cluster.open_connection()


def test_a_server_of_another_authority_is_refused(server, user):
    config = kubeconfig(server, user, **{"certificate-authority-data": encode(trustme.CA().cert_pem.bytes())})
    cluster = Cluster(Connection(kubeconfig_text=json.dumps(config)), retry_seconds=0.0)
    with contextlib.closing(cluster), pytest.raises(NoClusterConfigured, match="CERTIFICATE_VERIFY_FAILED"):
        cluster.open_connection()


def test_only_the_given_authority_is_trusted(server, user):
    """kubernetes 30 adds the public authorities to a TLS context without a file."""
    from trainjob.client.connection import open_client

    client, _ = open_client(Connection(kubeconfig_text=json.dumps(kubeconfig(server, user))))
    options = client.rest_client.pool_manager.connection_pool_kw
    assert options["ca_certs"] is None
    assert options["ssl_context"].cert_store_stats()["x509_ca"] == 1
    client.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_an_unverified_connection_uses_the_certificate(server, user):
    config = kubeconfig(server, user, **{"insecure-skip-tls-verify": True})
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(config)))) as cluster:
        cluster.open_connection()


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("certificate-authority-data", "bm90IFBFTQ==", "its certificate authority is not a PEM certificate"),
        ("client-certificate-data", "bm90IFBFTQ==", "its client certificate and key are not a pair in PEM"),
        ("client-key-data", None, "its client certificate and key are not a pair in PEM"),
    ],
)
def test_invalid_certificates_are_reported(server, part, content, message):
    config = kubeconfig(server, inline(server))
    owner = config["clusters"][0]["cluster"] if part.startswith("certificate-authority") else config["users"][0]["user"]
    owner[part] = content or encode(server.issue("other")[1])
    with pytest.raises(NoClusterConfigured, match=message):
        Cluster(Connection(kubeconfig_text=json.dumps(config)))


def test_a_key_with_a_password_is_refused_without_a_prompt(server):
    from cryptography.hazmat.primitives import serialization as pem

    certificate, key = server.issue("old")
    encrypted = pem.load_pem_private_key(key, None).private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
    )
    user = {"client-certificate-data": encode(certificate), "client-key-data": encode(encrypted)}
    with pytest.raises(NoClusterConfigured, match="without password"):
        Cluster(Connection(kubeconfig_text=json.dumps(kubeconfig(server, user))))


PROGRAM = """
    import sys, time, os
    from trainjob.client import Cluster, Connection

    cluster = Cluster(Connection(kubeconfig=sys.argv[1]))
    if sys.argv[2] == "after the first request":
        cluster.open_connection()
    if sys.argv[2] == "in a fork":
        if child := os.fork():
            os.waitpid(child, 0)
            sys.exit()
        cluster.open_connection()
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("moment", ["before the first request", "after the first request", "in a fork"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_killed_process_leaves_no_key(server, user, tmp_path, temporary_folder, moment, number):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(server, user)))
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), moment]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        if Path("/proc").is_dir():
            opened = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
            assert [target for target in opened if "memfd" in target or str(temporary_folder) in target] == []
        os.kill(pid, number)
        process.wait(60)
    assert list(temporary_folder.iterdir()) == []

"""The client verifies a server's certificate, unless the connection disables this."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from urllib3.exceptions import InsecureRequestWarning

from trainjob.client import Cluster, Connection
from trainjob.errors import NoClusterConfigured

CERTIFICATES = Path(__file__).resolve().parent / "certificates"
CA, OTHER_CA = CERTIFICATES / "ca.pem", CERTIFICATES / "other-ca.pem"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"major": "1"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Write no access log to standard error."""


@pytest.fixture(scope="module")
def port():
    """Return the port of a server on 127.0.0.1 with a certificate of the test CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    with QuietServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Ignore clients that reject the certificate."""


def kubeconfig(server, **cluster):
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
    )


def request_error(connection):
    """Return the error of a request over this connection; empty if the request succeeds."""
    with contextlib.closing(Cluster(connection, retry_seconds=0.0)) as cluster:
        try:
            cluster.open_connection()
        except NoClusterConfigured as error:
            return str(error)
    return ""


def to_base64(path):
    return base64.b64encode(path.read_bytes()).decode()


def test_a_certificate_of_the_configured_authority_is_accepted(port, evidence):
    server = f"https://127.0.0.1:{port}"
    assert request_error(Connection(server=server, ca_file=str(CA))) == ""
    assert (
        request_error(Connection(kubeconfig_text=kubeconfig(server, **{"certificate-authority-data": to_base64(CA)})))
        == ""
    )
    evidence("security", check="TLS: the certificate of the right authority", result="accepted")


@pytest.mark.parametrize(
    ("host", "authority", "why"),
    [
        ("127.0.0.1", OTHER_CA, "certificate verify failed"),
        ("127.0.0.1", None, "certificate verify failed"),
        ("localhost", CA, "Hostname mismatch"),
    ],
    ids=["another authority", "no authority: the machine's own", "another host name"],
)
def test_an_invalid_certificate_is_rejected(port, host, authority, why, evidence):
    server = f"https://{host}:{port}"
    explicit = request_error(Connection(server=server, ca_file=str(authority or "")))
    given = {} if authority is None else {"certificate-authority-data": to_base64(authority)}
    assert all(
        why in text for text in (explicit, request_error(Connection(kubeconfig_text=kubeconfig(server, **given))))
    )
    evidence("security", check=f"TLS: {why}", result="NoClusterConfigured, with the reason")


@pytest.mark.parametrize("setting", ["verify_tls=False", "insecure-skip-tls-verify"])
def test_disabled_verification_is_reported_with_a_warning(port, setting, evidence):
    server = f"https://127.0.0.1:{port}"
    skipping = Connection(kubeconfig_text=kubeconfig(server, **{"insecure-skip-tls-verify": True}))
    connection = Connection(server=server, verify_tls=False) if setting == "verify_tls=False" else skipping
    with pytest.warns(InsecureRequestWarning, match=r"Unverified HTTPS request is being made to host '127\.0\.0\.1'"):
        assert request_error(connection) == ""
    evidence("security", check=f"TLS: {setting}", result="not checked, and a warning with every request")


def test_certificates_are_verified_by_default():
    assert Connection().verify_tls is True
    assert "verify_tls" not in Connection(server="https://h").to_dict()
    assert Connection(server="https://h", verify_tls=False).to_dict()["verify_tls"] is False

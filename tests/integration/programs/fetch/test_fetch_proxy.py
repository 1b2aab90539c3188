"""Fetches through a proxy that HTTPS_PROXY names, from servers that only the proxy can resolve."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, read_contents, read_receipt
from tests.support.file_server import FileServer, ServedFile
from tests.support.loopback_server import LoopbackServer
from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server

HOST = "store.example.invalid"


class TunnelProxy(LoopbackServer):
    """A proxy that opens a tunnel to one server, whatever host the client names.

    `hosts` has these names.
    """

    def __init__(self, target):
        self.target, self.hosts = target, []
        super().__init__(TunnelRequest)


class TunnelRequest(BaseHTTPRequestHandler):
    def do_CONNECT(self):
        self.server.hosts.append(self.path)
        with socket.create_connection(self.server.target) as server:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=copy_bytes, args=(server, self.connection))
            back.start()
            copy_bytes(self.connection, server)
            back.join()
        self.close_connection = True


def copy_bytes(source, target):
    """Send what a socket receives to another one, until it is closed."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # the other side has closed the connection
        return


@pytest.fixture
def fetch(run_fetch, use_tls, authority, authority_file):
    """Return a function that fetches through a proxy.

    It returns the process and the hosts that the proxy got.
    """

    def run(server, uri, **variables):
        use_tls(server, authority.issue_cert(HOST))
        with TunnelProxy(server.server_address) as proxy:
            done = run_fetch("dataset", uri, HTTPS_PROXY=proxy.url, SSL_CERT_FILE=authority_file, **variables)
        return done, set(proxy.hosts)

    return run


def test_an_object_store_is_reached(fetch, tmp_path):
    with S3Server() as store:
        store.objects["models/v1/a.txt"] = StoredObject(b"content", {})
        done, hosts = fetch(store._server, "s3://models/v1", ENDPOINT=f"https://{HOST}", **store.environment)
    read_receipt(done)
    assert read_contents(tmp_path / "workspace" / "dataset") == {"a.txt": b"content"}
    assert hosts == {f"{HOST}:443"}


def test_the_hub_is_reached(fetch, hub):
    done, hosts = fetch(hub._server, "hf://demo/tickets", HF_ENDPOINT=f"https://{HOST}")
    assert read_receipt(done)["files"] == 3
    assert hosts == {f"{HOST}:443"}


def test_a_web_server_is_reached(fetch, tmp_path):
    with FileServer({"/rows.jsonl": ServedFile(b"{}\n", {"ETag": '"one"'})}) as files:
        done, hosts = fetch(files.http_server, f"https://{HOST}/rows.jsonl")
    read_receipt(done)
    assert read_contents(tmp_path / "workspace" / "dataset") == {"rows.jsonl": b"{}\n"}
    assert hosts == {f"{HOST}:443"}


def test_no_proxy_excludes_a_host(fetch, hub):
    done, hosts = fetch(hub._server, "hf://demo/tickets", HF_ENDPOINT=f"https://{HOST}", NO_PROXY=HOST)
    assert failure_message(done)
    assert hosts == set()

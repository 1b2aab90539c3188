"""Fixtures for stores with TLS."""

from __future__ import annotations

import socketserver
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def use_tls(tmp_path: Path) -> Callable[..., str]:
    """Return a function with which a running server uses TLS; it returns the server's URL.

    An authority instead of a certificate is its own certificate, self-signed.
    """

    def use(server: socketserver.TCPServer, certificate: trustme.LeafCert | trustme.CA) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if isinstance(certificate, trustme.CA):
            path = tmp_path / "self-signed.pem"
            path.write_bytes(certificate.private_key_pem.bytes() + certificate.cert_pem.bytes())
            context.load_cert_chain(path)
        else:
            certificate.configure_cert(context)
        accept = server.get_request

        def get_request() -> tuple[Any, Any]:
            connection, address = accept()
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

        server.get_request = get_request  # type: ignore[method-assign]
        host, port = server.server_address[:2]
        return f"https://{host!s}:{port}"

    return use

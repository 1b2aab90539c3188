"""The certificate authority (CA) of a laptop cluster, and the certificate of its API server."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme

from trainjob.errors import ClusterError
from trainjob_local.private_files import write_private

__all__ = ["create_server_context"]

_ORGANIZATION = "trainjob laptop cluster"
_NAMES = ("127.0.0.1", "localhost")


def create_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS settings of an API server at 127.0.0.1 and localhost.

    The CA stays the same as long as its two files exist, so that clients with its certificate reach the cluster after a
    restart. The certificate of the server is new in each process, and its key is in no file that remains.

    Args:
        certificate: PEM file with the certificate of the CA.
        key: PEM file with the private key of the CA.

    Raises:
        ClusterError: the files contain no certificate and key.
    """
    authority = _load(certificate, key) if certificate.exists() and key.exists() else _create(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*_NAMES, organization_name=_ORGANIZATION).configure_cert(context)
    return context


def _create(certificate: Path, key: Path) -> trustme.CA:
    authority = trustme.CA(organization_name=_ORGANIZATION)
    write_private(key, authority.private_key_pem.bytes().decode())
    write_private(certificate, authority.cert_pem.bytes().decode())  # last: without it the CA counts as missing
    return authority


def _load(certificate: Path, key: Path) -> trustme.CA:
    try:
        return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    except ValueError as error:
        raise ClusterError(
            f"{certificate} and {key} contain no certificate and private key",
            hint="remove both files; the cluster then creates another certificate authority",
        ) from error

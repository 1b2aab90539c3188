"""Connections of the fetch and export programs to stores: certificates, and advice about failures."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import ssl
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["create_tls_context", "find_connection_advice", "use_certificates"]

# Variables of other tools with the file of the trusted authorities, in the order of their precedence.
_CERTIFICATE_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_USED_VARIABLE = "SSL_CERT_FILE"
# Parts of messages of rustls 0.23 and reqwest 0.12 (opendal 0.47), OpenSSL 3, httpx (huggingface_hub 2.4) and urllib.
_ADVICE = {
    r"CaUsedAsEndEntity|self[- ]signed certificate(?! in certificate chain)": (
        "the store's certificate is its own authority, which is not accepted: give the store a certificate that an "
        f"authority signed, and name the authority's file in {_USED_VARIABLE}"
    ),
    r"UnknownIssuer|unable to get local issuer|self[- ]signed certificate in certificate chain": (
        f"set {_USED_VARIABLE} in env to a file with the certificate of the store's authority, such as one in volumes"
    ),
    r"NotValidForName|not valid for name|Hostname mismatch|doesn't match": (
        "the store's certificate has another name: correct the endpoint's host"
    ),
    r"certificate (?:has )?expired|invalid peer certificate: Expired|NotValidYet|not yet valid": (
        "the store's certificate has expired, or the node's clock is wrong"
    ),
    r"dns error|failed to lookup address|Name or service not known|name resolution|nodename nor servname": (
        "correct the endpoint's host, and check that pods can resolve it; the step may be repeated"
    ),
    r"tunnel error|unsuccessful tunnel|Tunnel connection failed|ProxyError|[Pp]roxy (?:error|connect|[Aa]uth)": (
        "check HTTPS_PROXY, and set NO_PROXY for a store inside the cluster"
    ),
    r"[Cc]onnection refused|All connection attempts failed": (
        "check the endpoint's host and port, and that pods can reach it; the step may be repeated"
    ),
}


def find_connection_advice(failure: str, default: str) -> str:
    """Return what to do about a failure of a connection.

    Args:
        failure: the library's message.
        default: advice for a failure of another kind.
    """
    return next((advice for pattern, advice in _ADVICE.items() if re.search(pattern, failure)), default)


def use_certificates(environment: MutableMapping[str, str] = os.environ) -> str:
    """Use the certificates that a variable of another tool names, such as AWS_CA_BUNDLE.

    Args:
        environment: the variables of this process.

    Returns:
        A line for the log; empty if there is nothing to say.
    """
    if _USED_VARIABLE in environment:
        return ""
    for name in _CERTIFICATE_VARIABLES:
        if path := environment.get(name, ""):
            environment[_USED_VARIABLE] = path
            return f"the certificates in {name} are used"
    return ""


@functools.cache
def create_tls_context() -> ssl.SSLContext:
    """Return the context of all TLS connections.

    An image without authorities uses those of certifi, which huggingface_hub requires.
    """
    paths = ssl.get_default_verify_paths()
    has_authorities = paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
    if not has_authorities and importlib.util.find_spec("certifi"):
        return ssl.create_default_context(cafile=importlib.import_module("certifi").where())
    return ssl.create_default_context()

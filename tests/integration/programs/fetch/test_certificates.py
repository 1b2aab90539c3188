"""Stores with TLS: own authorities, and advice about certificates that are not accepted."""

from __future__ import annotations

import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, read_contents, read_receipt
from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server
from trainjob.programs.fetch.connections import find_connection_advice, use_certificates

UNKNOWN_AUTHORITY = "set SSL_CERT_FILE in env to a file with the certificate of the store's authority"


@pytest.fixture
def serve(run_fetch, use_tls):
    """Return a function that fetches from a store with a certificate."""

    def fetch(certificate, **variables):
        with S3Server() as store:
            store.objects["models/v1/a.txt"] = StoredObject(b"content", {})
            endpoint = use_tls(store._server, certificate)
            given = {**store.environment, "ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1", **variables}
            return run_fetch("dataset", "s3://models/v1", **given)

    return fetch


@pytest.fixture
def fetch_from_hub(run_fetch, hub, use_tls):
    """Return a function that fetches a dataset from a hub with a certificate."""

    def fetch(certificate, **variables):
        endpoint = use_tls(hub._server, certificate)
        return run_fetch("dataset", "hf://demo/tickets", HF_ENDPOINT=endpoint, NO_PROXY="127.0.0.1", **variables)

    return fetch


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_store_of_an_own_authority_is_trusted(serve, authority, authority_file, tmp_path, variable):
    done = serve(authority.issue_cert("127.0.0.1"), **{variable: authority_file})
    assert read_receipt(done)["files"] == 1
    assert read_contents(tmp_path / "workspace" / "dataset") == {"a.txt": b"content"}
    assert (f"fetch: the certificates in {variable} are used" in done.stdout) == (variable != "SSL_CERT_FILE")


def test_an_unknown_authority_is_named_with_the_variable(serve, authority):
    message = failure_message(serve(authority.issue_cert("127.0.0.1")))
    assert UNKNOWN_AUTHORITY in message
    assert "may be repeated" not in message


def test_a_certificate_of_another_host_is_named(serve, authority, authority_file):
    message = failure_message(serve(authority.issue_cert("minio.example"), SSL_CERT_FILE=authority_file))
    assert "the store's certificate has another name: correct the endpoint's host" in message


def test_a_store_whose_certificate_is_its_own_authority_is_named(serve, authority, authority_file):
    message = failure_message(serve(authority, SSL_CERT_FILE=authority_file))
    assert "the store's certificate is its own authority, which is not accepted" in message


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_hub_of_an_own_authority_is_trusted(fetch_from_hub, authority, authority_file, variable):
    done = fetch_from_hub(authority.issue_cert("127.0.0.1"), **{variable: authority_file})
    assert read_receipt(done)["files"] == 3


def test_a_hub_of_an_unknown_authority_is_named_with_the_variable(fetch_from_hub, authority):
    message = failure_message(fetch_from_hub(authority.issue_cert("127.0.0.1")))
    assert UNKNOWN_AUTHORITY in message
    assert "may be repeated" not in message


# Messages of opendal 0.47 and huggingface_hub 2.4, shortened.
FAILURES = {
    "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))": "is its own authority, which is not accepted",
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate": "is its own authority",
    "certificate verify failed: self-signed certificate in certificate chain": "set SSL_CERT_FILE in env",
    "certificate verify failed: unable to get local issuer certificate": "set SSL_CERT_FILE in env",
    "invalid peer certificate: Expired": "has expired, or the node's clock is wrong",
    "dns error: failed to lookup address information: Name or service not known": "correct the endpoint's host",
    "tcp connect error: Connection refused (os error 111)": "check the endpoint's host and port",
    "unsuccessful tunnel: 407 Proxy Authentication Required": "set NO_PROXY for a store inside the cluster",
    "URLError: <urlopen error Tunnel connection failed: 403 Forbidden>": "set NO_PROXY for a store inside the cluster",
    "url (https://proxy.example/v2): Connection refused": "check the endpoint's host and port",
    "Temporary failure in name resolution": "the step may be repeated",
    "unexpected end of file": "the default",
}


@pytest.mark.parametrize(("failure", "advice"), FAILURES.items())
def test_each_failure_has_its_advice(failure, advice):
    assert advice in find_connection_advice(failure, "the default")


def test_the_own_variable_has_precedence():
    environment = {"SSL_CERT_FILE": "mine", "AWS_CA_BUNDLE": "other"}
    assert (use_certificates(environment), environment["SSL_CERT_FILE"]) == ("", "mine")
    assert use_certificates({}) == ""

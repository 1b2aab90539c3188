"""Exports to a store with TLS, whose authority is not one that the pods know."""

from __future__ import annotations

import json

import pytest

from tests.support.s3_server import S3Server

DESTINATION = "models/tickets/v1"


@pytest.fixture
def export(run_export, use_tls, authority):
    """Return a function that exports to a store; it returns the process and the objects."""

    def run(**variables):
        with S3Server() as store:
            endpoint = use_tls(store._server, authority.issue_cert("127.0.0.1"))
            given = {**store.environment, "NO_PROXY": "127.0.0.1", **variables}
            return run_export(f"s3://{DESTINATION}", "--endpoint", endpoint, **given), store.read_prefix(DESTINATION)

    return run


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_model_is_exported_to_a_store_of_an_own_authority(export, authority_file, variable):
    done, objects = export(**{variable: authority_file})
    assert done.returncode == 0, done.stderr
    assert set(json.loads(objects["manifest.json"])["files"]) == set(objects) - {"manifest.json"}
    assert (f"export: the certificates in {variable} are used" in done.stdout) == (variable != "SSL_CERT_FILE")


def test_an_unknown_authority_is_named_with_the_variable(export):
    done, objects = export()
    assert (done.returncode, objects) == (1, {})
    assert "set SSL_CERT_FILE in env to a file with the certificate of the store's authority" in done.stderr
    assert "may be repeated" not in done.stderr

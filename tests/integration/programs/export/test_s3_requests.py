"""Signed requests to S3, and the credentials of pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError

import pytest

from tests.support.loopback_server import LoopbackServer
from tests.support.s3_server import S3Server
from trainjob.programs.export.s3_requests import AwsCredentials, S3Requests, find_credentials, sign

# The examples of Amazon S3 API Reference, Authenticating Requests: Using the Authorization Header.
EXAMPLE = AwsCredentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "https://examplebucket.s3.amazonaws.com"
ISSUED = {"AccessKeyId": "issued", "SecretAccessKey": "secret", "Token": "session", "SessionToken": "session"}


@pytest.mark.parametrize(
    ("url", "headers", "signature"),
    [
        ("/test.txt", {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?lifecycle=", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_the_signatures_are_those_of_the_reference(url: str, headers: dict[str, str], signature: str) -> None:
    now = datetime(2013, 5, 24, tzinfo=timezone.utc)
    signed = sign("GET", f"{HOST}{url}", headers, EXAMPLE, "us-east-1", now=now)
    assert signed["Authorization"].rpartition("Signature=")[2] == signature
    assert "wJalrXUtnFEMI" not in repr(EXAMPLE)


class Issuer(BaseHTTPRequestHandler):
    """A service that issues credentials: STS, EKS Pod Identity or an EC2 instance."""

    requests: ClassVar[list[tuple[str, str, dict[str, str]]]]
    answers: ClassVar[Mapping[str, Any]]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.requests.append((self.command, self.path, dict(self.headers.items())))
        answer = self.answers.get(path)
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    handler = type("Handler", (Issuer,), {"requests": [], "answers": {}})
    server = LoopbackServer(handler)
    server.handler = handler
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    try:
        yield server
    finally:
        server.stop()


def test_keys_have_precedence() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    assert find_credentials({"access_key_id": "x", "secret_access_key": "y"}, keys) == AwsCredentials("x", "y")
    assert find_credentials({}, {**keys, "AWS_WEB_IDENTITY_TOKEN_FILE": "/none"}) == AwsCredentials("a", "b", "c")
    assert find_credentials({}, {"AWS_EC2_METADATA_DISABLED": "true"}) is None


def test_a_web_identity_is_exchanged_for_credentials(
    issuer: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "token").write_text("of the service account\n")
    result = {"AssumeRoleWithWebIdentityResult": {"Credentials": ISSUED}}
    issuer.handler.answers = {"/": {"AssumeRoleWithWebIdentityResponse": result}}
    environment = {
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/export",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ENDPOINT_URL_STS": issuer.url,
    }
    assert find_credentials({}, environment) == AwsCredentials("issued", "secret", "session")
    [(_, path, _)] = issuer.handler.requests
    assert "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fexport" in path
    assert "WebIdentityToken=of%20the%20service%20account" in path


def test_a_role_is_assumed_with_the_own_credentials(issuer: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    issuer.handler.answers = {"/": {"AssumeRoleResponse": {"AssumeRoleResult": {"Credentials": ISSUED}}}}
    options = {"access_key_id": "own", "secret_access_key": "key", "region": "eu-west-1", "role_arn": "arn:role"}
    found = find_credentials(options, {"AWS_ENDPOINT_URL_STS": issuer.url})
    assert found == AwsCredentials("issued", "secret", "session")
    [(_, path, headers)] = issuer.handler.requests
    assert "RoleArn=arn%3Arole" in path
    assert re.search("Credential=own/[0-9]{8}/eu-west-1/sts/aws4_request", headers["Authorization"])


def test_the_endpoint_of_a_container_issues_credentials_without_a_proxy(issuer: LoopbackServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pod")
    issuer.handler.answers = {"/v1/credentials": ISSUED}
    environment = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{issuer.url}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
    }
    assert find_credentials({}, environment) == AwsCredentials("issued", "secret", "session")
    [(_, _, headers)] = issuer.handler.requests
    assert headers["Authorization"] == "of the pod"


def test_the_metadata_of_an_instance_has_credentials(issuer: LoopbackServer) -> None:
    roles = "/latest/meta-data/iam/security-credentials/"
    issuer.handler.answers = {"/latest/api/token": "once", roles: "role", f"{roles}role": ISSUED}
    environment = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": issuer.url}
    assert find_credentials({}, environment) == AwsCredentials("issued", "secret", "session")
    assert [headers.get("X-Aws-Ec2-Metadata-Token") for _, _, headers in issuer.handler.requests] == [
        None,
        "once",
        "once",
    ]
    issuer.handler.answers = {}
    assert find_credentials({}, environment) is None


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"region": "eu-west-1"}, "https://s3.eu-west-1.amazonaws.com/models"),
        ({"region": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn/models"),
        ({"endpoint": "http://minio:9000/"}, "http://minio:9000/models"),
        ({"endpoint": "minio"}, "https://minio/models"),
        ({"endpoint": "https://minio", "enable_virtual_host_style": "true"}, "https://models.minio"),
    ],
)
def test_the_address_of_a_bucket(options: dict[str, str], url: str) -> None:
    assert S3Requests("models", options, AwsCredentials("a", "b"))._bucket_url == url


def test_a_refusal_has_its_reason() -> None:
    with S3Server() as store:
        requests = S3Requests("models", {"endpoint": store.url}, AwsCredentials("wrong", "b"))
        with pytest.raises(HTTPError, match="InvalidAccessKeyId"):
            requests.send("GET", "", {"uploads": ""})

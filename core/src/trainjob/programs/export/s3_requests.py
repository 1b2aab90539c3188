"""Signed requests to S3, for what opendal has no function for.

Sources: Amazon S3 API Reference 2006-03-01, Authenticating Requests (AWS Signature Version 4); AWS SDKs and Tools
Reference Guide, Standardized credential providers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

from trainjob.programs.fetch.connections import create_tls_context

__all__ = ["AwsCredentials", "S3Requests", "find_credentials", "sign"]

_TIMEOUT = 30.0  # seconds for one request
_METADATA_TIMEOUT = 2.0  # outside of AWS, nothing responds at the address
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class AwsCredentials:
    """Credentials of AWS; `token` is that of a session, or empty."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)


class S3Requests:
    """Sender of signed requests to one bucket.

    Args:
        bucket: name of the bucket.
        options: options of opendal's s3 service.
        credentials: credentials of the requests.
    """

    def __init__(self, bucket: str, options: Mapping[str, str], credentials: AwsCredentials) -> None:
        self._region, self._credentials = options.get("region", "us-east-1"), credentials
        endpoint = options.get("endpoint") or _get_endpoint("s3", self._region)
        scheme, _, server = endpoint.rstrip("/").rpartition("://")
        is_virtual = "enable_virtual_host_style" in options
        self._bucket_url = f"{scheme or 'https'}://{f'{bucket}.{server}' if is_virtual else f'{server}/{bucket}'}"
        self._headers = {"x-amz-request-payer": "requester"} if "enable_request_payer" in options else {}

    def send(self, method: str, key: str, query: Mapping[str, str]) -> str:
        """Send a request without a body, and return the body of the response.

        Args:
            method: HTTP method.
            key: key of the object; empty for the bucket.
            query: parameters of the request.

        Raises:
            OSError: the store refuses the request (HTTPError) or can't be reached.
        """
        path = f"/{quote(key, safe='/~')}"
        url = f"{self._bucket_url}{path}?{_encode(query)}"
        headers = sign(method, url, self._headers, self._credentials, self._region)
        return _send(method, url, headers)


def sign(
    method: str,
    url: str,
    headers: Mapping[str, str],
    credentials: AwsCredentials,
    region: str,
    *,
    service: str = "s3",
    now: datetime | None = None,
) -> dict[str, str]:
    """Return the headers of a request without a body, with those that authorize it.

    Args:
        method: HTTP method.
        url: address, whose path and query are encoded, and whose parameters are in the order of their names.
        headers: other headers of the request; they are signed, too.
        credentials: the credentials.
        region: region of the service.
        service: name of the service.
        now: time of the signature, in UTC; None for the current time.
    """
    address, time = urlsplit(url), f"{now or datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    signed = {**headers, "x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": time}
    if credentials.token:
        signed["x-amz-security-token"] = credentials.token
    canonical = {"host": address.netloc, **{name.lower(): value.strip() for name, value in signed.items()}}
    names = sorted(canonical)
    lines = [f"{name}:{canonical[name]}" for name in names]
    request = "\n".join(
        [method, address.path or "/", address.query, *lines, "", ";".join(names), _EMPTY_SHA256],
    )
    scope = f"{time[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return {**signed, "Authorization": authorization}


def find_credentials(options: Mapping[str, str], environment: Mapping[str, str]) -> AwsCredentials | None:
    """Return the credentials of a pod; None if it has none of a known kind.

    The kinds are keys in the options or the variables `AWS_*`, a web identity (IAM roles for service accounts), the
    endpoint of a container (EKS Pod Identity, ECS), and the metadata of an EC2 instance, in this order. With them, a
    role in the options is assumed.

    Args:
        options: options of opendal's s3 service.
        environment: variables of the pod.

    Raises:
        OSError: the service that issues the credentials refuses or can't be reached.
    """
    found, role = _find_own_credentials(options, environment), options.get("role_arn", "")
    return _assume_role(role, found, options, environment) if found and role else found


def _find_own_credentials(options: Mapping[str, str], environment: Mapping[str, str]) -> AwsCredentials | None:
    if options.get("access_key_id"):
        return AwsCredentials(
            options["access_key_id"], options.get("secret_access_key", ""), options.get("session_token", "")
        )
    if environment.get("AWS_ACCESS_KEY_ID"):
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        return AwsCredentials(*(environment.get(name, "") for name in names))
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _assume_role_with_web_identity(options, environment)
    path, url = (environment.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI", "") for kind in ("RELATIVE", "FULL"))
    if url or path:
        return _read_container_credentials(url or f"http://169.254.170.2{path}", environment)
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return _read_instance_credentials(environment)


def _assume_role_with_web_identity(options: Mapping[str, str], environment: Mapping[str, str]) -> AwsCredentials:
    token = Path(environment["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text().strip()
    query = {"RoleArn": environment.get("AWS_ROLE_ARN", ""), "WebIdentityToken": token}
    return _call_sts("AssumeRoleWithWebIdentity", query, None, options, environment)


def _assume_role(
    role: str, own: AwsCredentials, options: Mapping[str, str], environment: Mapping[str, str]
) -> AwsCredentials:
    return _call_sts("AssumeRole", {"RoleArn": role}, own, options, environment)


def _call_sts(
    action: str,
    query: Mapping[str, str],
    credentials: AwsCredentials | None,
    options: Mapping[str, str],
    environment: Mapping[str, str],
) -> AwsCredentials:
    """Return the credentials that AWS STS (API of 2011-06-15) issues for a role."""
    region = environment.get("AWS_REGION") or options.get("region", "us-east-1")
    session = environment.get("AWS_ROLE_SESSION_NAME") or "trainjob"
    fields = {**query, "Action": action, "RoleSessionName": session, "Version": "2011-06-15"}
    endpoint = environment.get("AWS_ENDPOINT_URL_STS") or _get_endpoint("sts", region)
    url = f"{endpoint}/?{_encode(fields)}"
    headers = {"Accept": "application/json"}
    if credentials:
        headers = sign("GET", url, headers, credentials, region, service="sts")
    found = json.loads(_send("GET", url, headers))[f"{action}Response"][f"{action}Result"]["Credentials"]
    return AwsCredentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])


def _get_endpoint(service: str, region: str) -> str:
    """Return AWS's address of a service in a region."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://{service}.{region}.{domain}"


def _encode(query: Mapping[str, str]) -> str:
    return urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")


def _read_container_credentials(url: str, environment: Mapping[str, str]) -> AwsCredentials:
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if path := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        token = Path(path).read_text().strip()
    return _parse_credentials(_send_directly("GET", url, {"Authorization": token} if token else {}))


def _read_instance_credentials(environment: Mapping[str, str]) -> AwsCredentials | None:
    server = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    roles = f"{server}/latest/meta-data/iam/security-credentials/"
    try:
        token = _send_directly("PUT", f"{server}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    except OSError:  # this is no EC2 instance
        return None
    headers = {"X-aws-ec2-metadata-token": token}
    role = _send_directly("GET", roles, headers).split()
    return _parse_credentials(_send_directly("GET", f"{roles}{role[0]}", headers)) if role else None


def _parse_credentials(answer: str) -> AwsCredentials:
    found: dict[str, Any] = json.loads(answer)
    return AwsCredentials(found["AccessKeyId"], found["SecretAccessKey"], found.get("Token", ""))


def _send(method: str, url: str, headers: Mapping[str, str]) -> str:
    handler = urllib.request.HTTPSHandler(context=create_tls_context())
    return _read(urllib.request.build_opener(handler), method, url, headers, _TIMEOUT)


def _send_directly(method: str, url: str, headers: Mapping[str, str]) -> str:
    """Send a request to a service of the node, which no proxy reaches."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return _read(opener, method, url, headers, _METADATA_TIMEOUT)


def _read(
    opener: urllib.request.OpenerDirector, method: str, url: str, headers: Mapping[str, str], timeout: float
) -> str:
    request = urllib.request.Request(url, None, dict(headers), method=method)  # noqa: S310 - http(s)
    try:
        with opener.open(request, timeout=timeout) as response:
            return str(response.read().decode())
    except HTTPError as refusal:
        with refusal:  # its body may name the reason
            refusal.msg = refusal.read(4096).decode(errors="replace") or refusal.msg
        raise

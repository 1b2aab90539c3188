"""Credentials of stores, as a step's environment has them: for fetches and exports alike."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping

from trainjob.errors import InvalidSpec, Problem

__all__ = ["CREDENTIAL_NAMES", "censored", "google_options", "s3_options"]

GOOGLE = "GOOGLE_CREDENTIALS"
CREDENTIAL_NAMES = ("ACCESS_TOKEN", "HF_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", GOOGLE)
_SHORTEST_SECRET = 6  # characters; a shorter one would blacken words


def s3_options(environment: Mapping[str, str], endpoint: str, region: str) -> dict[str, str]:
    """The options of opendal's s3 service, but for the bucket; what is empty is left to AWS's own tools.

    Args:
        environment: where the credentials are.
        endpoint: the store's address; empty for AWS.
        region: the bucket's; empty to take AWS_REGION.
    """
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    options = {
        "endpoint": endpoint,
        # "auto" as upstream's initializers (Trainer 2.3 pkg/initializers/utils/opendal.py); AWS wants a real one.
        "region": region or ("auto" if endpoint else "us-east-1"),
        "access_key_id": environment.get("ACCESS_KEY_ID", ""),
        "secret_access_key": environment.get("SECRET_ACCESS_KEY", ""),
        "session_token": environment.get("SESSION_TOKEN", ""),
    }
    return {name: value for name, value in options.items() if value}


def google_options(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """The options of opendal's gcs service, but for the bucket; what is empty is left to Google's own ways.

    GOOGLE_CREDENTIALS holds what a key file holds, a service account's or a workload identity federation's, as with
    Terraform's google provider; GOOGLE_APPLICATION_CREDENTIALS, the path of such a file, opendal reads itself.

    Args:
        environment: where the credentials are.
        endpoint: the store's address; empty for Google's.

    Raises:
        InvalidSpec: GOOGLE_CREDENTIALS is no key file's content.
    """
    options = {"endpoint": endpoint}
    if content := environment.get(GOOGLE, ""):
        try:
            json.loads(content)["type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            rule = 'it must be the content of a key file, a JSON object with "type", such as "service_account"'
            raise InvalidSpec(Problem(GOOGLE, "***", rule)) from None
        # opendal 0.47 takes the content in base64 only.
        options["credential"] = base64.b64encode(content.encode()).decode()
    return {name: value for name, value in options.items() if value}


def censored(message: str, names: Iterable[str] = CREDENTIAL_NAMES) -> str:
    """A message without the values of these environment variables."""
    for name in names:
        if len(secret := os.environ.get(name, "")) >= _SHORTEST_SECRET:
            message = message.replace(secret, "***")
    return message

"""Credentials of stores in a step's environment, for fetches and exports."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence

from trainjob.errors import NO_CREDENTIALS, InvalidSpec, Problem, TrainJobError

__all__ = ["CREDENTIALS_HELP", "azure_options", "check_secrets", "google_options", "s3_options"]

CREDENTIALS_HELP = "name of a Secret, and the variables of which the pod must have at least one"
"""Help of the option `--secret` of fetch and export."""
GOOGLE = "GOOGLE_CREDENTIALS"
# Variables of the Rust crate object_store, which Polars, Delta Lake and others read, and opendal's options.
_S3_SWITCHES = {
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "enable_virtual_host_style",
    "AWS_REQUEST_PAYER": "enable_request_payer",
}
_S3_SETTINGS = {
    "AWS_SERVER_SIDE_ENCRYPTION": "server_side_encryption",
    "AWS_SSE_KMS_KEY_ID": "server_side_encryption_aws_kms_key_id",
}
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


def check_secrets(
    secrets: Iterable[Sequence[str]], environment: Mapping[str, str], error_class: type[TrainJobError]
) -> None:
    """Raise an error for the first Secret of which the pod has no variable.

    The references to its keys are optional, because a store accepts alternatives. Therefore the kubelet starts the pod
    even if the Secret does not exist. The pod can't distinguish a missing Secret from one without these keys.

    Args:
        secrets: the name of each Secret, followed by the variables that may come from it.
        environment: variables of the pod.
        error_class: class of the error.

    Raises:
        TrainJobError: the pod has none of the variables of a Secret.
    """
    for name, *variables in secrets:
        if not any(variable in environment for variable in variables):
            raise error_class(
                f"{NO_CREDENTIALS} {name}: it does not exist, or has none of the keys {', '.join(variables)}",
                hint="create it in the namespace of the TrainJob, correct its name or keys, or name no Secret",
            )


def s3_options(environment: Mapping[str, str], endpoint: str, region: str) -> dict[str, str]:
    """Return the options of opendal's s3 service, without the bucket.

    Empty options are left out. opendal then uses AWS's own mechanisms.

    Args:
        environment: variables with the credentials.
        endpoint: the store's address; empty means AWS.
        region: the bucket's region; empty means AWS_REGION.
    """
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    options = {
        "endpoint": endpoint,
        # "auto", as in the Trainer's initializers (Trainer 2.3 pkg/initializers/utils/opendal.py); AWS requires a real
        # region.
        "region": region or ("auto" if endpoint else "us-east-1"),
        "access_key_id": environment.get("ACCESS_KEY_ID", ""),
        "secret_access_key": environment.get("SECRET_ACCESS_KEY", ""),
        "session_token": environment.get("SESSION_TOKEN", ""),
        "role_arn": environment.get("ROLE_ARN", ""),
        **{option: environment.get(name, "") for name, option in _S3_SETTINGS.items()},
        **{
            option: "true"
            for name, option in _S3_SWITCHES.items()
            if environment.get(name, "").lower() in ("1", "true", "requester")
        },
    }
    return {name: value for name, value in options.items() if value}


def google_options(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return the options of opendal's gcs service, without the bucket.

    Empty options are left out. opendal then uses Google's own mechanisms. GOOGLE_CREDENTIALS contains the content of a
    key file, of a service account or of workload identity federation, as for Terraform's google provider. opendal
    itself reads GOOGLE_APPLICATION_CREDENTIALS, the path of such a file.

    Args:
        environment: variables with the credentials.
        endpoint: the store's address; empty means Google's.

    Raises:
        InvalidSpec: GOOGLE_CREDENTIALS is not the content of a key file.
    """
    options = {"endpoint": endpoint}
    if content := environment.get(GOOGLE, ""):
        try:
            json.loads(content)["type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            rule = 'it must be the content of a key file, a JSON object with "type", such as "service_account"'
            raise InvalidSpec(Problem(GOOGLE, "***", rule)) from None
        # opendal 0.47 accepts the content in base64 only.
        options["credential"] = base64.b64encode(content.encode()).decode()
    return {name: value for name, value in options.items() if value}


def azure_options(
    environment: Mapping[str, str], endpoint: str, account: str = "", account_url: str = ""
) -> dict[str, str]:
    """Return the options of opendal's azblob service, without the container.

    Empty options are left out. opendal then uses Azure's own mechanisms: a service principal or a workload identity in
    the variables AZURE_*, and the managed identity of the node.

    Args:
        environment: variables with the credentials, as for Azure's command line or adlfs.
        endpoint: URL of the storage account; empty means that of the address or the account.
        account: the storage account in the address; may be empty.
        account_url: its URL; may be empty.

    Raises:
        InvalidSpec: the storage account is not known, or the connection string has no known form.
    """
    connection = _parse_connection_string(environment.get(_CONNECTION, ""))
    names = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    account = account or _first(environment, names) or connection.get("AccountName", "")
    protocol, suffix = connection.get("DefaultEndpointsProtocol", "https"), connection.get("EndpointSuffix", "")
    url = f"{protocol}://{account}.blob.{suffix or 'core.windows.net'}" if account else ""
    url = endpoint or account_url or connection.get("BlobEndpoint", "") or url
    if not url:
        rule = "name the storage account in the address, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or here"
        raise InvalidSpec(Problem(names[0], "''", rule))
    key = _first(environment, ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")) or connection.get("AccountKey", "")
    token = environment.get("AZURE_STORAGE_SAS_TOKEN") or connection.get("SharedAccessSignature", "")
    options = {"endpoint": url, "account_name": account, "account_key": key, "sas_token": token.lstrip("?")}
    return {name: value for name, value in options.items() if value}


def _parse_connection_string(text: str) -> dict[str, str]:
    """Return the settings in a connection string, `NAME=VALUE` separated by `;`."""
    settings = dict(setting.strip().split("=", 1) for setting in text.split(";") if "=" in setting)
    if text and not {"AccountName", "BlobEndpoint"} & settings.keys():
        rule = "it must be a connection string of Azure Storage, AccountName=...;AccountKey=..."
        raise InvalidSpec(Problem(_CONNECTION, "***", rule))
    return settings


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")

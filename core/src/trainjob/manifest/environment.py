"""Environment variables of containers, with references to Secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.addresses import AZURE_SCHEMES
from trainjob.spec import SecretKeyReference, SecretReference
from trainjob.spec.secrets import EnvValue
from trainjob.spec.trainers import escape_expansion

HUGGING_FACE_KEYS = ("ACCESS_TOKEN", "HF_TOKEN")
"""Variables that the Trainer's initializers and huggingface_hub read."""
S3_KEYS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
"""Variables that the Trainer's initializers read, except the last, which only our own programs read."""
GOOGLE_KEYS = ("GOOGLE_CREDENTIALS",)
"""The variable that our programs read: the content of a key file."""
AZURE_KEYS = (
    *("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"),
)
"""Variables that our programs read: those of Azure's command line, of adlfs, and of a service principal."""
WEB_KEYS = ("ACCESS_TOKEN",)
"""The variable that our fetch reads: the Bearer token for a web server."""
_KEYS = {
    "hf": HUGGING_FACE_KEYS,
    "s3": S3_KEYS,
    "gs": GOOGLE_KEYS,
    "https": WEB_KEYS,
    **dict.fromkeys(AZURE_SCHEMES, AZURE_KEYS),
}

REGISTRY_KEYS = ("REGISTRY_TOKEN",)
"""The variable that our export reads to register a model in a Kubeflow Model Registry."""
MLFLOW_KEYS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Variables that mlflow, and our export, read for a server that requires a login."""


def env_list(env: Mapping[str, EnvValue | None]) -> list[dict[str, Any]]:
    """Return a container's `env`, without the variables that are None."""
    return [_variable(name, value) for name, value in env.items() if value is not None]


def secret_env(secret: SecretReference | None, keys: tuple[str, ...]) -> dict[str, EnvValue]:
    """Return the environment variables that refer to the keys of a Secret.

    `spec.trainer` has no envFrom, so each known key is referenced by name. These references are optional, because a
    store accepts alternatives. A program of this project that finds none of them fails ([secret_arguments][]).
    """
    if secret is None:
        return {}
    if secret.keys:
        return {name: SecretKeyReference(name=secret.name, key=key) for name, key in secret.keys.items()}
    return {key: SecretKeyReference(name=secret.name, key=key, optional=True) for key in keys}


def secret_arguments(secret: SecretReference | None, keys: tuple[str, ...]) -> list[str]:
    """Return the arguments by which a program of this project checks that its Secret exists.

    They are empty if the kubelet does it, because the reference names its keys and is not optional.
    """
    return ["--secret", secret.name, *keys] if secret and keys and not secret.keys else []


def get_credential_keys(uri: str) -> tuple[str, ...]:
    """Return the credentials that a store needs, chosen by the scheme of its URI."""
    return _KEYS.get(uri.partition("://")[0], ())


def _variable(name: str, value: EnvValue) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": name, "value": escape_expansion(value)}
    if isinstance(value, Mapping):
        return {"name": name, "valueFrom": dict(value)}
    reference: dict[str, Any] = {"name": value.name, "key": value.key}
    if value.optional:
        reference["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}

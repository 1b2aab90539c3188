"""References to credentials: a Kubernetes Secret and a key in it, never a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from trainjob.addresses import REFERENCE_ADVICE, check_uri
from trainjob.errors import InvalidSpec
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.credential_checks import check_text, check_variable
from trainjob.spec.kubernetes_values import check_kubernetes_value
from trainjob.spec.problems import REDACTED

# A Secret's name is a DNS subdomain (Kubernetes 1.36).
_SECRET_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# A key in a Secret (Kubernetes 1.36, validation.IsConfigMapKey).
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REGION = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
_ENV_SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef")
FILE_KEY_ADVICE = "no Trainer up to 2.3 passes on a key of a file: give the value, or read the file in the program"
"""Advice for a variable with `fileKeyRef`, which reaches the container without a value (seen with 2.1 to 2.3)."""
_CREDENTIAL_FIELDS = ("access_token", "access_key_id", "secret_access_key", "session_token")


class SecretKeyReference(Spec):
    """Reference to one key of a Secret, for the value of an environment variable.

    Attributes:
        name: name of the Secret, in the TrainJob's namespace.
        key: the key in the Secret.
        optional: whether the variable is omitted if the key does not exist.
    """

    name: str
    key: str
    optional: bool = False

    @field_validator("name")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        return validate_secret_name(name, "name")

    @field_validator("key")
    @classmethod
    def _validate_key_field(cls, key: str) -> str:
        return _validate_key(key, "")


class SecretReference(Spec):
    """Reference to a Secret with a step's credentials; a plain string stands for its name.

    Attributes:
        name: name of the Secret, in the TrainJob's namespace.
        keys: key in the Secret for each environment variable, if its key has another name than the variable.
    """

    name: str
    keys: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        return validate_secret_name(name, "name")

    @field_validator("keys")
    @classmethod
    def _validate_keys(cls, keys: Mapping[str, str]) -> Mapping[str, str]:
        return {variable: _validate_key(key, variable) for variable, key in keys.items()}


def validate_secret_name(name: str, field: str) -> str:
    """Return a Secret's name if it is valid.

    The error does not show an invalid name, because it may be the credential itself.

    Raises:
        InvalidSpec: the name is not a DNS subdomain.
    """
    if len(name) > 253 or not _SECRET_NAME.fullmatch(name):
        raise invalid_field(
            field,
            REDACTED,
            f"it must be the name of a Secret (lower case letters, digits, - and .); {REFERENCE_ADVICE}",
        )
    return name


def _validate_key(key: str, field: str) -> str:
    """Return a key in a Secret if it is valid.

    The error does not show an invalid key, because it may be the credential itself.

    Raises:
        InvalidSpec: the key is invalid.
    """
    if not _SECRET_KEY.fullmatch(key):
        raise invalid_field(field, REDACTED, "it must be the name of a key in the Secret: letters, digits, -, _ and .")
    return key


def _secret_from_name(value: Any) -> Any:
    return {"name": validate_secret_name(value, "")} if isinstance(value, str) else value


Secret = Annotated[SecretReference, BeforeValidator(_secret_from_name)]
EnvValue = str | SecretKeyReference | Mapping[str, Any]
"""Value of an environment variable: a text, a key of a Secret, or a source as in Kubernetes.

A source is a dict with one of the fields of `valueFrom`, such as `{"fieldRef": {"fieldPath": "spec.nodeName"}}`.
"""


def _validate_env(env: Any) -> Any:
    """Return environment variables if their names and values are allowed.

    Names that the Trainer reserves (Trainer 2.3, plugins/torch/torch.go) and credentials as plain values are refused.

    Raises:
        InvalidSpec: a variable is not allowed, or there are more than 128.
    """
    if not isinstance(env, Mapping):
        return env
    if len(env) > 128:
        raise invalid_field("", f"{len(env)} variables", "a TrainJob can have at most 128")
    return {name: _validate_variable(str(name), value) for name, value in env.items()}


def _validate_variable(name: str, value: Any) -> Any:
    if not name or "=" in name or not (name.isascii() and name.isprintable()):
        raise invalid_field(
            repr(name), REDACTED, "a variable's name must consist of printable ASCII characters other than '='"
        )
    if name.startswith("PET_"):
        raise invalid_field(
            name, value, "names that start with PET_ are reserved, because the Trainer sets them for torchrun"
        )
    value = str(value) if isinstance(value, int | float) else value
    if isinstance(value, str):
        check_variable(name, value, name, f"SecretKeyReference(name='NAME', key='{name}')")
    if value is None:
        raise invalid_field(
            name, None, "it must be a string or a SecretKeyReference; omit the variable if it has no value"
        )
    return _convert_source(name, value) if isinstance(value, Mapping) else value


def _convert_source(name: str, value: Mapping[str, Any]) -> Any:
    """Return the value of a variable that is written as a dict.

    Raises:
        InvalidSpec: it is neither a reference to a Secret, nor a source as in Kubernetes that a Trainer passes on.
    """
    given = value["valueFrom"] if [*value] == ["valueFrom"] else value
    try:
        if not isinstance(given, Mapping) or not set(given) & {*_ENV_SOURCES, "fileKeyRef"}:
            return SecretKeyReference.from_object(given)
        found = check_kubernetes_value(given, "spec.trainer.env[].valueFrom")
        if "fileKeyRef" in found:
            raise invalid_field("fileKeyRef", REDACTED, FILE_KEY_ADVICE)
        if len(found) != 1:
            raise invalid_field("", REDACTED, f"give exactly one of {', '.join(_ENV_SOURCES)}")
        [(kind, source)] = found.items()
        if kind == "secretKeyRef":
            return SecretKeyReference.from_object(source)
        if kind == "configMapKeyRef" and not source.get("name"):
            raise invalid_field(f"{kind}.name", None, "name the ConfigMap")
    except InvalidSpec as error:
        problems = [replace(problem, field=f"{name}.{problem.field}".rstrip(".")) for problem in error.problems]
        raise InvalidSpec(problems) from None
    return {kind: source}


Env = Annotated[Mapping[str, EnvValue], BeforeValidator(_validate_env)]


class CredentialFreeSpec(Spec):
    """A request that uses a store, and accepts credentials only as `secret`."""

    @model_validator(mode="before")
    @classmethod
    def _reject_plain_credentials(cls, data: Any) -> Any:
        for name in _CREDENTIAL_FIELDS:
            value = data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)
            if value is not None:
                raise invalid_field(
                    name, REDACTED, f"give a credential as a reference, not as a value: {REFERENCE_ADVICE}"
                )
        if isinstance(data, Mapping):  # the SDK's classes have these fields, with the value None
            return {name: value for name, value in data.items() if name not in _CREDENTIAL_FIELDS}
        return data


def _validate_endpoint(url: Any) -> Any:
    if not isinstance(url, str):
        return url
    check_uri(url, "", ("https", "http"))
    check_text(url, "")
    return url


def validate_server(url: str, example: str) -> str:
    """Return a server's URL without a slash at its end.

    Raises:
        InvalidSpec: the URL has a query or a fragment.
    """
    if "?" in url or "#" in url:
        raise invalid_field("", url, f"it must be only the server's address, such as {example}")
    return url.rstrip("/")


def _validate_region(region: Any) -> Any:
    if isinstance(region, str) and region and not _REGION.fullmatch(region):
        raise invalid_field("", region, "it must be a region's name: letters, digits, - and ., such as eu-central-1")
    return region


Region = Annotated[str, BeforeValidator(_validate_region)]
"""Region of an object store."""
Endpoint = Annotated[str, BeforeValidator(_validate_endpoint)]
"""URL of an object store."""

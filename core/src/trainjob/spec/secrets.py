"""Secrets are references: the name of a Kubernetes Secret and of a key in it, never a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from trainjob.spec.base import HIDDEN, Spec, refuse

# A Secret's name is a DNS subdomain (Kubernetes 1.36).
_SECRET_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# A key in a Secret (Kubernetes 1.36, validation.IsConfigMapKey).
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REFERENCE = "put it into a Secret (kubectl create secret generic NAME --from-literal=KEY=...) and give secret='NAME'"
# Environment variables that hold credentials wherever these libraries read them.
_CREDENTIAL_ENV = re.compile(
    r"(HF|HUGGING_FACE_HUB|HUGGINGFACE|ACCESS|WANDB_API|AWS_SESSION|SESSION)_?(HUB_)?(TOKEN|KEY)"
    r"|(AWS_)?SECRET_ACCESS_KEY|(AWS_)?ACCESS_KEY_ID|GOOGLE_CREDENTIALS|.*(_|^)(PASSWORD|PASSWD|API_KEY|SECRET|SECRET_KEY|TOKEN)",
    re.IGNORECASE,
)
# A user with a password; or anything in front of the @ where there is no user without one, as in git@HOST.
_CREDENTIALS_IN_URL = re.compile(r"://[^/\s@:]*:[^/\s@]+@|https?://[^/\s@]+@")
_REGION = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
_CREDENTIAL_FIELDS = ("access_token", "access_key_id", "secret_access_key", "session_token")


class SecretKeyReference(Spec):
    """One key of a Secret, as the value of an environment variable.

    Attributes:
        name: the Secret, in the TrainJob's namespace.
        key: the key in it.
        optional: the variable is left out when there is no such key.
    """

    name: str
    key: str
    optional: bool = False

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return checked_secret_name(name, "name")

    @field_validator("key")
    @classmethod
    def _is_a_key(cls, key: str) -> str:
        return _checked_key(key, "")


class SecretReference(Spec):
    """A Secret with the credentials of a step; a plain string stands for its name.

    Attributes:
        name: the Secret, in the TrainJob's namespace.
        keys: environment variable -> key in the Secret, where the keys are not called like the variables.
    """

    name: str
    keys: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return checked_secret_name(name, "name")

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, keys: Mapping[str, str]) -> Mapping[str, str]:
        return {variable: _checked_key(key, variable) for variable, key in keys.items()}


def checked_secret_name(name: str, field: str) -> str:
    """The name, if it can be one; what can't be is not shown, as it may be the secret itself.

    Raises:
        InvalidSpec: it is no DNS name.
    """
    if len(name) > 253 or not _SECRET_NAME.fullmatch(name):
        raise refuse(
            field, HIDDEN, f"it must be the name of a Secret (lower case letters, digits, - and .); {_REFERENCE}"
        )
    return name


def _checked_key(key: str, field: str) -> str:
    """What can't be a key is not shown, as it may be the secret itself."""
    if not _SECRET_KEY.fullmatch(key):
        raise refuse(field, HIDDEN, "it must be the name of a key in the Secret: letters, digits, -, _ and .")
    return key


def _secret_from_name(given: Any) -> Any:
    return {"name": checked_secret_name(given, "")} if isinstance(given, str) else given


Secret = Annotated[SecretReference, BeforeValidator(_secret_from_name)]
EnvValue = str | SecretKeyReference


def _checked_env(env: Any) -> Any:
    """Refuses names that the Trainer reserves (2.3, plugins/torch/torch.go) and credentials as plain values."""
    if not isinstance(env, Mapping):
        return env
    if len(env) > 128:
        raise refuse("", f"{len(env)} variables", "a TrainJob takes at most 128")
    return {name: _checked_variable(str(name), value) for name, value in env.items()}


def _checked_variable(name: str, value: Any) -> Any:
    if not name or "=" in name or not (name.isascii() and name.isprintable()):
        raise refuse(repr(name), HIDDEN, "a variable's name has printable ASCII characters other than '='")
    if name.startswith("PET_"):
        raise refuse(name, value, "names with PET_ are reserved: torchrun gets them from the Trainer")
    value = str(value) if isinstance(value, int | float) else value
    if isinstance(value, str):
        check_no_credential(name, value, f"SecretKeyReference(name='NAME', key='{name}')")
    if value is None:
        raise refuse(name, None, "it must be a text, or a SecretKeyReference; leave the variable out otherwise")
    return value


def check_no_credential(name: str, value: str, reference: str) -> None:
    """Refuse an environment variable whose plain value is a credential, by its name or as a URL with a password.

    Args:
        name: the variable.
        value: what it is to be.
        reference: what to write in its place.

    Raises:
        InvalidSpec: naming the variable.
    """
    if value and (_CREDENTIAL_ENV.fullmatch(name) or holds_credentials(value)):
        raise refuse(name, HIDDEN, f"a credential must be a reference, such as {reference}")


def holds_credentials(url: str) -> bool:
    """Whether a URL in this text has a user with a password, or a token."""
    return bool(_CREDENTIALS_IN_URL.search(url))


Env = Annotated[Mapping[str, EnvValue], BeforeValidator(_checked_env)]


class WithoutCredentials(Spec):
    """A request that reads from or writes to a store: it takes credentials as `secret` only."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_values(cls, given: Any) -> Any:
        for name in _CREDENTIAL_FIELDS:
            value = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
            if value is not None:
                raise refuse(name, HIDDEN, f"a secret is given by reference, never as a value: {_REFERENCE}")
        if isinstance(given, Mapping):  # the SDK's own None
            return {name: value for name, value in given.items() if name not in _CREDENTIAL_FIELDS}
        return given


def checked_location(uri: str, field: str, schemes: tuple[str, ...]) -> str:
    """A URI with one of these schemes and no credentials in it.

    Raises:
        InvalidSpec: it has none, another one, nothing behind it, or `user:password@`.
    """
    scheme, separator, rest = uri.partition("://")
    if "@" in (rest or uri).partition("/")[0]:
        raise refuse(field, HIDDEN, f"it must hold no user and password; {_REFERENCE}")
    allowed = " or ".join(f"{name}://…" for name in schemes)
    if not separator:
        advice = f"; did you mean {schemes[0]}://{uri}?" if re.fullmatch(r"[\w.-]+/[\w.-]+(/.*)?", uri) else ""
        raise refuse(field, uri, f"it must be a URI: {allowed}{advice}")
    if scheme not in schemes:
        raise refuse(field, uri, f"allowed are {allowed}")
    if not rest.strip("/"):
        raise refuse(field, uri, "nothing follows the scheme")
    if ".." in rest.split("/") or not uri.isprintable() or not _is_readable(uri):
        raise refuse(field, uri, "it must have no '..', no control characters, and brackets only around IPv6")
    return uri


def _checked_endpoint(url: Any) -> Any:
    return checked_location(url, "", ("https", "http")) if isinstance(url, str) else url


def _is_readable(uri: str) -> bool:
    try:
        return bool(urlsplit(uri))
    except ValueError:
        return False


def _checked_region(region: Any) -> Any:
    if isinstance(region, str) and region and not _REGION.fullmatch(region):
        raise refuse("", region, "it must be a region's name: letters, digits, - and ., such as eu-central-1")
    return region


Region = Annotated[str, BeforeValidator(_checked_region)]
"""An object store's region."""
Endpoint = Annotated[str, BeforeValidator(_checked_endpoint)]
"""An object store's URL."""

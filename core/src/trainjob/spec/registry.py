"""Model registries in which an exported model is registered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, field_validator

from trainjob.spec.base import invalid_field
from trainjob.spec.secrets import CredentialFreeSpec, Endpoint, Secret, validate_server

# mlflow 3.17, mlflow/utils/validation.py
_ALIAS = re.compile(r"[\w-]+")
_RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)


class ModelRegistry(CredentialFreeSpec):
    """A Kubeflow Model Registry, and the names of a model in it.

    Attributes:
        server: URL of the registry, such as `https://registry.example.org`; `http://` is used only if the URL has it.
        model: name of the registered model, which is created if it does not exist.
        version: name of the version; by default the first twelve digits of the export's digest, so the same export is
            always the same version. If the version exists with another content, the registration is refused.
        author: author of the version.
        secret: Secret with the key `REGISTRY_TOKEN`, for a registry that requires a token.
    """

    server: Endpoint
    model: str
    version: str | None = None
    author: str | None = None
    secret: Secret | None = None

    @field_validator("server")
    @classmethod
    def _validate_server(cls, server: str) -> str:
        return validate_server(server, "https://registry.example.org")

    @field_validator("model", "version", "author")
    @classmethod
    def _validate_searchable_name(cls, name: str | None) -> str | None:
        """Return a name if the registry can search for it.

        Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3, the parameter `name`.
        """
        if name is not None and not (name.strip() == name and name and name.isascii() and name.isprintable()):
            raise invalid_field("", name, "it must be printable ASCII text without leading or trailing spaces")
        return name


class MLflowRegistry(CredentialFreeSpec):
    """The model registry of an MLflow server, and the name of a model in it.

    Every export is a version of its own. The same export is always the same version.

    Attributes:
        tracking_uri: URL of the server, as the export's pod reaches it.
        model: name of the registered model, which is created if it does not exist.
        alias: alias that the version gets, such as `champion`; another version loses it.
        secret: Secret with the key `MLFLOW_TRACKING_TOKEN`, or with `MLFLOW_TRACKING_USERNAME` and
            `MLFLOW_TRACKING_PASSWORD`, for a server that requires a login.
    """

    backend: Literal["mlflow"] = "mlflow"
    tracking_uri: Endpoint
    model: str = Field(max_length=256)
    alias: str | None = Field(default=None, max_length=255)
    secret: Secret | None = None

    @field_validator("tracking_uri")
    @classmethod
    def _validate_tracking_uri(cls, uri: str) -> str:
        return validate_server(uri, "https://mlflow.example.org")

    @field_validator("model")
    @classmethod
    def _validate_model(cls, name: str) -> str:
        if not name.strip() or "/" in name or ":" in name or name == "." or name.startswith(".."):
            raise invalid_field("", name, "it must be a name without / and :, and must not begin with ..")
        return name

    @field_validator("alias")
    @classmethod
    def _validate_alias(cls, alias: str | None) -> str | None:
        if alias is not None and (not _ALIAS.fullmatch(alias) or _RESERVED_ALIAS.fullmatch(alias)):
            raise invalid_field("", alias, "it must consist of letters, digits, - and _, and not be latest or v1")
        return alias


def _to_registry(value: Any) -> Any:
    """Return a registry from an instance or a dict, whose `backend` determines the class.

    Raises:
        InvalidSpec: the value is neither, or a field is invalid.
    """
    if isinstance(value, ModelRegistry | MLflowRegistry):
        return value
    if not isinstance(value, Mapping) or "backend" not in value:
        return ModelRegistry.from_object(value)
    if value["backend"] != "mlflow":
        raise invalid_field("backend", value["backend"], "it must be mlflow; omit it for a Kubeflow Model Registry")
    return MLflowRegistry.from_object(value)


# Without `InstanceOf` pydantic would try each class of the union with the attributes of the chosen one.
Registry = Annotated[InstanceOf[ModelRegistry] | InstanceOf[MLflowRegistry], BeforeValidator(_to_registry)]
"""A model registry. A dict with `backend: mlflow` is an `MLflowRegistry`, and another one a `ModelRegistry`."""

"""Model registry in which an exported model is registered."""

from __future__ import annotations

from pydantic import field_validator

from trainjob.spec.base import invalid_field
from trainjob.spec.secrets import CredentialFreeSpec, Endpoint, Secret


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
        if "?" in server or "#" in server:
            raise invalid_field(
                "", server, "it must be only the registry's address, such as https://registry.example.org"
            )
        return server.rstrip("/")

    @field_validator("model", "version", "author")
    @classmethod
    def _validate_searchable_name(cls, name: str | None) -> str | None:
        """Return a name if the registry can search for it.

        Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3, the parameter `name`.
        """
        if name is not None and not (name.strip() == name and name and name.isascii() and name.isprintable()):
            raise invalid_field("", name, "it must be printable ASCII text without leading or trailing spaces")
        return name

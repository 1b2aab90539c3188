"""Where a model is registered once it is exported."""

from __future__ import annotations

from pydantic import field_validator

from trainjob.spec.base import refuse
from trainjob.spec.secrets import Endpoint, Secret, WithoutCredentials


class ModelRegistry(WithoutCredentials):
    """A Kubeflow Model Registry, and the names a model gets in it.

    Attributes:
        server: its URL, such as `https://registry.example.org`; http:// only where it is written out.
        model: the registered model's name; made when there is none.
        version: the version's name; by default the first twelve digits of the export's digest, so that the same export
            is always the same version. A version that is there already with another content is refused.
        author: the version's author.
        secret: a Secret with the key `REGISTRY_TOKEN`, for a registry that wants a token.
    """

    server: Endpoint
    model: str
    version: str | None = None
    author: str | None = None
    secret: Secret | None = None

    @field_validator("server")
    @classmethod
    def _is_an_address(cls, server: str) -> str:
        if "?" in server or "#" in server:
            raise refuse("", server, "it must be the registry's address alone, such as https://registry.example.org")
        return server.rstrip("/")

    @field_validator("model", "version", "author")
    @classmethod
    def _is_searchable(cls, name: str | None) -> str | None:
        """Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3, the parameter `name`."""
        if name is not None and not (name.strip() == name and name and name.isascii() and name.isprintable()):
            raise refuse("", name, "it must be printable ASCII text, without blanks at its ends")
        return name

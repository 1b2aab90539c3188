"""Alias of a version in a model registry, such as `champion`.

MLflow has aliases (REST API 2.0, mlflow 3.17). A Kubeflow Model Registry has none. Its states are `LIVE` and
`ARCHIVED`, and its users do not see an archived version any more. The alias is therefore a property of the registered
model, with the version's name as its value. One request sets it, so never two versions have the alias.
Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from trainjob.errors import PromotionError
from trainjob.programs.registry_client import TOKEN_VARIABLE, RegistryClient, get_authorization, parse_object

__all__ = ["Alias", "MLflowAlias", "ModelRegistryAlias", "create_alias"]

_PAGE = 100


class Alias(Protocol):
    """An alias of a registered model."""

    def find_version(self, uri: str) -> str:
        """Return the newest version whose files are at an address."""

    def read(self) -> str:
        """Return the version with the alias; empty for none."""

    def set(self, version: str) -> None:
        """Give the alias to a version; an empty one removes it."""

    def find_uri(self) -> str:
        """Return the address of the version with the alias; empty for none."""


class MLflowAlias:
    """An alias in the registry of an MLflow server.

    Args:
        server: URL of the server.
        model: name of the registered model.
        alias: name of the alias.
        authorization: header `Authorization`; may be empty.

    All methods raise an ExportError if the server cannot be reached or refuses a request.
    """

    def __init__(self, server: str, model: str, alias: str, authorization: str = "") -> None:
        self._model, self._alias = model, alias
        hint = "check the login in the registry's secret: it must allow to read and edit models"
        self._client = RegistryClient(
            server, "/api/2.0/mlflow", authorization, title="an MLflow server", access_hint=hint
        )

    def find_version(self, uri: str) -> str:
        """Return the newest version whose files are at an address.

        Raises:
            PromotionError: there is none.
        """
        versions = [int(each["version"]) for each in self._list_versions() if each.get("source") == uri]
        if not versions:
            raise _no_version(self._model, uri)
        return str(max(versions))

    def read(self) -> str:
        """Return the version with the alias; empty for none."""
        found = self._call("GET", f"registered-models/get?{urlencode({'name': self._model})}")
        aliases = found.get("registered_model", {}).get("aliases", [])
        return next((str(each["version"]) for each in aliases if each["alias"] == self._alias), "")

    def set(self, version: str) -> None:
        """Give the alias to a version; an empty one removes it."""
        names = {"name": self._model, "alias": self._alias}
        if version:
            self._call("POST", "registered-models/alias", {**names, "version": version})
        elif self.read():
            self._call("DELETE", "registered-models/alias", names)

    def find_uri(self) -> str:
        """Return the address of the version with the alias; empty for none."""
        version = self.read()
        return next((str(each["source"]) for each in self._list_versions() if str(each["version"]) == version), "")

    def _list_versions(self) -> Iterator[Mapping[str, Any]]:
        quote = '"' if "'" in self._model else "'"
        query = {"filter": f"name = {quote}{self._model}{quote}", "max_results": _PAGE}
        while True:
            page = self._call("GET", f"model-versions/search?{urlencode(query)}")
            yield from page.get("model_versions", [])
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        status, answer = self._client.request(method, path, body)
        if (parse_object(answer) or {}).get("error_code") == "RESOURCE_DOES_NOT_EXIST":
            raise PromotionError(f"the registry has no model {self._model}", hint="register an export of it first")
        if status != 200:
            raise self._client.to_error(status, answer)
        return self._client.decode(answer)


class ModelRegistryAlias:
    """An alias in a Kubeflow Model Registry; see [MLflowAlias][] for the arguments and errors."""

    def __init__(self, server: str, model: str, alias: str, authorization: str = "") -> None:
        self._model, self._alias = model, alias
        hint = "check REGISTRY_TOKEN in the registry's secret: it must read and change models"
        self._client = RegistryClient(
            server, "/api/model_registry/v1alpha3", authorization, title="a Model Registry", access_hint=hint
        )

    def find_version(self, uri: str) -> str:
        """Return the newest version whose files are at an address.

        Raises:
            PromotionError: there is none.
        """
        for version in self._list_versions():
            if uri in self._list_uris(version):
                return str(version["name"])
        raise _no_version(self._model, uri)

    def read(self) -> str:
        """Return the version with the alias; empty for none."""
        value = (self._read_model().get("customProperties") or {}).get(self._alias) or {}
        return str(value.get("string_value", ""))

    def set(self, version: str) -> None:
        """Give the alias to a version; an empty one removes it."""
        model = self._read_model()
        properties = dict(model.get("customProperties") or {})  # a PATCH replaces all of them
        properties.pop(self._alias, None)
        if version:
            properties[self._alias] = {"metadataType": "MetadataStringValue", "string_value": version}
        self._call("PATCH", f"registered_models/{model['id']}", {"customProperties": properties})

    def find_uri(self) -> str:
        """Return the address of the version with the alias; empty for none."""
        name = self.read()
        found = [
            uri for version in self._list_versions() if version["name"] == name for uri in self._list_uris(version)
        ]
        return found[0] if found else ""

    def _list_versions(self) -> Iterator[Mapping[str, Any]]:
        """Yield the model's versions, newest first."""
        newest_first = {"orderBy": "CREATE_TIME", "sortOrder": "DESC"}
        yield from self._list(f"registered_models/{self._read_model()['id']}/versions", newest_first)

    def _list_uris(self, version: Mapping[str, Any]) -> list[str]:
        found = self._list(f"model_versions/{version['id']}/artifacts", {})
        return [str(each["uri"]) for each in found if each.get("uri")]

    def _read_model(self) -> dict[str, Any]:
        status, answer = self._client.request("GET", f"registered_model?{urlencode({'name': self._model})}")
        if status == 404:
            raise PromotionError(f"the registry has no model {self._model}", hint="register an export of it first")
        return self._decode(status, answer)

    def _list(self, path: str, order: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        query = {**order, "pageSize": str(_PAGE)}
        while True:
            page = self._call("GET", f"{path}?{urlencode(query)}")
            yield from page.get("items", [])
            if not page.get("nextPageToken"):
                return
            query["nextPageToken"] = page["nextPageToken"]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._decode(*self._client.request(method, path, body))

    def _decode(self, status: int, answer: bytes) -> dict[str, Any]:
        if status != 200:
            raise self._client.to_error(status, answer)
        return self._client.decode(answer)


def create_alias(registry: Mapping[str, Any], alias: str, environment: Mapping[str, str] = os.environ) -> Alias:
    """Return an alias.

    Args:
        registry: `server` or `tracking_uri`, and `model`, as in the classes of [trainjob.spec.registry][].
        alias: name of the alias.
        environment: variables with the login.
    """
    if "tracking_uri" in registry:
        return MLflowAlias(registry["tracking_uri"], registry["model"], alias, get_authorization(environment))
    token = environment.get(TOKEN_VARIABLE, "")
    return ModelRegistryAlias(registry["server"], registry["model"], alias, f"Bearer {token}" if token else "")


def _no_version(model: str, uri: str) -> PromotionError:
    hint = "register the export in the step ExportModel, or name the version"
    return PromotionError(f"the registry has no version of {model} with the address {uri}", hint=hint)

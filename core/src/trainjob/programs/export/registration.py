"""Registration of an export in a Kubeflow Model Registry.

An entry consists of a registered model, a version of it, and an artifact with the location of the version's files.
Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3.

Every part is looked up by its name before it is created. The property `digest` of a version identifies its export. An
interrupted registration is therefore completed by repeating it, and a complete one is left unchanged. A version of
another export is refused before anything is uploaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from trainjob.errors import ExportError
from trainjob.programs.export.properties import to_properties
from trainjob.programs.registry_client import TOKEN_VARIABLE, RegistryClient

__all__ = ["Registration", "RegistryEntry"]

_API = "/api/model_registry/v1alpha3"
_NAME_TAKEN_STATUSES = (400, 409)  # the API's answers if a name is taken
_FORMAT = "safetensors"


@dataclass(frozen=True)
class RegistryEntry:
    """An entry to create in a model registry.

    Attributes:
        server: the registry's URL.
        model: the registered model's name.
        uri: location at which users of the registry find the export's files.
        version: the version's name; empty means the first 12 digits of the export's digest.
        author: the version's author; may be empty.
        token: the registry's access token; may be empty.
    """

    server: str
    model: str
    uri: str
    version: str = ""
    author: str = ""
    token: str = field(default="", repr=False)


class Registration:
    """The registration of one export.

    Args:
        entry: the entry to create.
        digest: the SHA-256 of the export's manifest.
    """

    def __init__(self, entry: RegistryEntry, digest: str) -> None:
        self._entry, self._digest = entry, digest
        self._version = entry.version or digest[:12]
        self._client = RegistryClient(
            entry.server,
            _API,
            f"Bearer {entry.token}" if entry.token else "",
            title="a Model Registry",
            access_hint=f"check {TOKEN_VARIABLE} in the registry's secret: it must read and create models",
        )

    def check(self) -> None:
        """Check that the entry can be created; call this before the upload.

        Raises:
            ExportError: the registry cannot be reached or refuses the request, or it has this version with other files.
        """
        model = self._find("registered_model", {"name": self._entry.model})
        if model is not None and (version := self._find_version(model)) is not None:
            self._check_same_export(version)

    def create(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        """Create the missing parts of the entry; call this after all files are uploaded.

        Args:
            metadata: values for the version's properties: parameters, metrics, origin.

        Returns:
            The names and IDs of model, version and artifact.

        Raises:
            ExportError: the registry refuses a request or cannot be reached; the export may be repeated.
        """
        name = {"name": self._entry.model}
        model = self._get_or_create("registered_model", name, "registered_models", name)
        parent = {"name": self._version, "parentResourceId": model["id"]}
        fields = {
            "name": self._version,
            "registeredModelId": model["id"],
            "customProperties": to_properties({**metadata, "digest": self._digest}),
            **({"author": self._entry.author} if self._entry.author else {}),
        }
        version = self._get_or_create("model_version", parent, "model_versions", fields)
        self._check_same_export(version)
        artifact = self._get_or_create(
            "model_artifact",
            {**name, "parentResourceId": version["id"]},
            f"model_versions/{version['id']}/artifacts",
            {**name, "artifactType": "model-artifact", "uri": self._entry.uri, "modelFormatName": _FORMAT},
        )
        if artifact.get("uri") != self._entry.uri:
            raise self._version_conflict(f"its files are at {artifact.get('uri')}")
        ids = {"model_id": model["id"], "version_id": version["id"], "artifact_id": artifact["id"]}
        return {"model": self._entry.model, "version": self._version, **ids}

    def _find_version(self, model: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._find("model_version", {"name": self._version, "parentResourceId": model["id"]})

    def _check_same_export(self, version: Mapping[str, Any]) -> None:
        digest = (version.get("customProperties") or {}).get("digest") or {}
        if digest.get("string_value") != self._digest:
            raise self._version_conflict("it belongs to another export")

    def _version_conflict(self, why: str) -> ExportError:
        return ExportError(
            f"{self._entry.server} has a version {self._version} of {self._entry.model} already, and {why}",
            hint="name another version, or omit it, so that every export gets its own version",
        )

    def _get_or_create(
        self, search: str, names: Mapping[str, str], path: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        found = self._find(search, names)
        if found is not None:
            return found
        status, answer = self._client.request("POST", path, body)
        if status in (200, 201):
            return self._resource(answer)
        # Another client created it in the meantime, or our own earlier request whose response was lost.
        if status in _NAME_TAKEN_STATUSES and (found := self._find(search, names)) is not None:
            return found
        raise self._client.to_error(status, answer)

    def _find(self, search: str, names: Mapping[str, str]) -> dict[str, Any] | None:
        status, answer = self._client.request("GET", f"{search}?{urlencode(names)}")
        if status == 404:
            return None
        if status != 200:
            raise self._client.to_error(status, answer)
        return self._resource(answer)

    def _resource(self, body: bytes) -> dict[str, Any]:
        found = self._client.decode(body)
        if not isinstance(found.get("id"), str):
            raise self._client.wrong_server()
        return found

"""Registration of an export in a Kubeflow Model Registry.

An entry consists of a registered model, a version of it, and an artifact with the location of the version's files.
Source: kubeflow/model-registry api/openapi/model-registry.yaml, v1alpha3.

Every part is looked up by its name before it is created. The property `digest` of a version identifies its export. An
interrupted registration is therefore completed by repeating it, and a complete one is left unchanged. A version of
another export is refused before anything is uploaded.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trainjob.errors import ExportError
from trainjob.programs.export.properties import to_properties

__all__ = ["TOKEN_VARIABLE", "Registration", "RegistryEntry"]

TOKEN_VARIABLE = "REGISTRY_TOKEN"  # noqa: S105 - the name of the variable
_API = "/api/model_registry/v1alpha3"
_TIMEOUT = 30.0  # seconds for one request
_PAUSES = (0.5, 1.0, 2.0)  # seconds between tries
_RETRY_STATUSES = (429, 500, 502, 503, 504)
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
        self._opener = build_opener(_NoRedirects)

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
        status, answer = self._request("POST", path, body=body)
        if status in (200, 201):
            return self._resource(answer)
        # Another client created it in the meantime, or our own earlier request whose response was lost.
        if status in _NAME_TAKEN_STATUSES and (found := self._find(search, names)) is not None:
            return found
        raise self._to_error(status, answer)

    def _find(self, search: str, names: Mapping[str, str]) -> dict[str, Any] | None:
        status, answer = self._request("GET", f"{search}?{urlencode(names)}")
        if status == 404:
            return None
        if status != 200:
            raise self._to_error(status, answer)
        return self._resource(answer)

    def _resource(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise ExportError(
                f"the response of {self._entry.server} is not that of a Model Registry", hint="check its address"
            )
        return found

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Send a request, and return the response's status and body.

        The request is repeated if the registry does not answer, or answers that it is starting or busy.

        Raises:
            ExportError: the registry did not answer the last try.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._entry.token:
            headers["Authorization"] = f"Bearer {self._entry.token}"
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._entry.server}{_API}/{path}", content, headers, method=method)  # noqa: S310 - http(s)
        status, answer = self._once(request)
        for pause in _PAUSES:
            if status and status not in _RETRY_STATUSES:
                break
            time.sleep(pause)
            status, answer = self._once(request)
        if not status:
            hint = "check its address, and that pods can reach it; the export may be repeated at any time"
            raise ExportError(f"{self._entry.server}: no response: {answer.decode()}", hint=hint)
        return status, answer

    def _once(self, request: Request) -> tuple[int, bytes]:
        """Send a request once, and return the response's status and body.

        Without a response, the status is 0 and the body is the reason.
        """
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return answer.status, answer.read()
        except HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()
        except (OSError, http.client.HTTPException) as failure:  # URLError is an OSError
            return 0, (str(getattr(failure, "reason", failure)) or type(failure).__name__).encode()

    def _to_error(self, status: int, body: bytes) -> ExportError:
        try:
            message = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError, RecursionError):
            message = body.decode(errors="replace")
        text = " ".join(str(message).split())[:300]
        if status in (401, 403):
            hint = f"check {TOKEN_VARIABLE} in the registry's secret: it must read and create models"
            return ExportError(f"{self._entry.server}: access denied ({status}): {text}", hint=hint)
        hint = "check its address; the export may be repeated at any time"
        return ExportError(f"{self._entry.server} returned {status}: {text}", hint=hint)


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirect, because the token is only for the given server."""

    def redirect_request(self, *_: Any) -> None:
        """Ignore the redirect, so that the caller gets the redirect response itself."""

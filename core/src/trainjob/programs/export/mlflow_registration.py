"""Registration of an export in the model registry of an MLflow server.

An entry is a version of a registered model. Its source is the export's address, and its tag `trainjob.digest`
identifies the export. Source: MLflow's REST API 2.0 (mlflow 3.17, docs/api_reference/source/rest-api.rst).

The version is looked up by source and digest before it is created, and again afterwards. If the answer to a request was
lost, or two exports run at once, there may be several versions: the oldest one remains. An interrupted registration is
therefore completed by repeating it. The alias is set last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from trainjob.mlflow_names import TAG_PREFIX, to_mlflow_name
from trainjob.programs.export.origin import Origin
from trainjob.programs.export.properties import flatten
from trainjob.programs.registry_client import MLFLOW_LOGIN, RegistryClient, parse_object

__all__ = ["MLflowEntry", "MLflowRegistration"]

_API = "/api/2.0/mlflow"
_MISSING, _EXISTS = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"
_PAGE = 1000  # experiments of one request
_MAX_TAG_LENGTH = 5000  # of a value; MLflow 3.17 allows more


@dataclass(frozen=True)
class MLflowEntry:
    """An entry to create in a model registry of MLflow.

    Attributes:
        tracking_uri: the server's URL.
        model: the registered model's name.
        uri: location at which users of the registry find the export's files.
        alias: alias of the version; may be empty.
        authorization: header `Authorization` for the server; may be empty.
    """

    tracking_uri: str
    model: str
    uri: str
    alias: str = ""
    authorization: str = field(default="", repr=False)


class MLflowRegistration:
    """The registration of one export.

    Args:
        entry: the entry to create.
        digest: the SHA-256 of the export's manifest.
        origin: the TrainJob that trained the model.
    """

    def __init__(self, entry: MLflowEntry, digest: str, origin: Origin) -> None:
        self._entry, self._digest, self._origin = entry, digest, origin
        login = f"{MLFLOW_LOGIN}, in the registry's secret"
        hint = f"check {login}: they must allow to create models and to edit the tracked run"
        self._client = RegistryClient(
            entry.tracking_uri, _API, entry.authorization, title="an MLflow server", access_hint=hint
        )

    def check(self) -> None:
        """Check that the server answers and accepts the login; call this before the upload.

        Raises:
            ExportError: the server cannot be reached or refuses a request.
        """
        self._call("GET", "registered-models/get", {"name": self._entry.model}, ignored=_MISSING)
        self._find_run()

    def create(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        """Create the missing parts of the entry; call this after all files are uploaded.

        Args:
            metadata: values for the version's tags: parameters, metrics, origin.

        Returns:
            The names of model, version and alias, and the ID of the tracked run.

        Raises:
            ExportError: the server refuses a request or cannot be reached; the export may be repeated.
        """
        model, run = self._entry.model, self._find_run()
        version = self._find_or_create_version(metadata, run)
        if run:
            tag = {"key": f"{TAG_PREFIX}exported_model", "value": self._entry.uri}
            self._call("POST", "runs/set-tag", {"run_id": run, **tag})
        if self._entry.alias:
            alias = {"name": model, "alias": self._entry.alias, "version": version}
            self._call("POST", "registered-models/alias", alias)
        found = {"model": model, "version": version, "alias": self._entry.alias, "run_id": run}
        return {name: text for name, text in found.items() if text}

    def _find_or_create_version(self, metadata: Mapping[str, Any], run: str) -> str:
        versions = self._find_versions()
        if not versions:
            self._call("POST", "registered-models/create", {"name": self._entry.model}, ignored=_EXISTS)
            fields = {"name": self._entry.model, "source": self._entry.uri, "tags": self._build_tags(metadata)}
            body = {**fields, **({"run_id": run} if run else {})}
            status, answer = self._client.request("POST", "model-versions/create", body)
            versions = self._find_versions()
            if not versions:
                raise self._client.to_error(status, answer)
        version, *duplicates = versions
        for each in duplicates:
            self._call(
                "DELETE", "model-versions/delete", {"name": self._entry.model, "version": each}, ignored=_MISSING
            )
        return version

    def _find_versions(self) -> list[str]:
        """Return the versions of this export, oldest first."""
        condition = f"tags.`{TAG_PREFIX}digest` = '{self._digest}'"
        found = self._call("GET", "model-versions/search", {"filter": condition}).get("model_versions", [])
        wanted = (self._entry.model, self._entry.uri)
        return sorted((each["version"] for each in found if (each["name"], each["source"]) == wanted), key=int)

    def _build_tags(self, metadata: Mapping[str, Any]) -> list[dict[str, str]]:
        values = flatten({**metadata, "digest": self._digest})
        tags = {to_mlflow_name(f"{TAG_PREFIX}{name}"): _to_text(value) for name, value in values.items()}
        return [{"key": name, "value": text[:_MAX_TAG_LENGTH]} for name, text in tags.items()]

    def _find_run(self) -> str:
        """Return the ID of the run that tracked the training; empty for none or several."""
        if not self._origin.job:
            return ""
        search = {"filter": f"tags.`{TAG_PREFIX}name` = '{self._origin.job}'"}
        runs = [
            run
            for experiments in self._list_experiments()
            for run in self._call("POST", "runs/search", {"experiment_ids": experiments, **search}).get("runs", [])
        ]
        found = [run["info"]["run_id"] for run in runs if self._is_of_workflow_run(run)]
        return found[0] if len(found) == 1 else ""

    def _is_of_workflow_run(self, run: Mapping[str, Any]) -> bool:
        """Return whether a run's tags name the training's workflow run.

        Its TrainJob alone does not identify it, because users may name TrainJobs.
        """
        tags = {each["key"]: each.get("value", "") for each in run["data"].get("tags", [])}
        known = {tags.get(f"{TAG_PREFIX}{name}") for name in ("engine", "workflow", "run")} - {None}
        return not self._origin.workflow_run or known <= {
            unquote(part) for part in self._origin.workflow_run.split("/")
        }

    def _list_experiments(self) -> Iterator[list[str]]:
        """Yield the IDs of all experiments, page by page."""
        token = ""
        while True:
            page = self._call("POST", "experiments/search", {"max_results": _PAGE, "page_token": token})
            if experiments := page.get("experiments"):
                yield [each["experiment_id"] for each in experiments]
            token = page.get("next_page_token", "")
            if not token:
                return

    def _call(self, method: str, path: str, values: Mapping[str, Any], ignored: str = "") -> dict[str, Any]:
        """Return the object in a response; an empty one for an ignored error.

        Args:
            method: HTTP method.
            path: path of the request.
            values: the query of a GET, or the body.
            ignored: code of MLflow's error that is none.

        Raises:
            ExportError: the server refuses the request or cannot be reached.
        """
        if method == "GET":
            status, answer = self._client.request(method, f"{path}?{urlencode(values)}")
        else:
            status, answer = self._client.request(method, path, values)
        if status == 200:
            return self._client.decode(answer)
        if ignored and (parse_object(answer) or {}).get("error_code") == ignored:
            return {}
        raise self._client.to_error(status, answer)


def _to_text(value: str | bool | float) -> str:
    return value if isinstance(value, str) else json.dumps(value)

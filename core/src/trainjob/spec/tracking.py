"""Experiment trackers to which a training's parameters and metrics are sent."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, field_validator

from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_values
from trainjob.spec.secrets import CredentialFreeSpec, Endpoint, Secret, validate_server

NO_PROJECT_CHARACTER = re.compile(r"[/\\#?%:\s]")
"""Character that Weights & Biases refuses in a project's name (wandb 0.31, sdk/wandb_settings.py)."""
_ParameterValue = str | bool | int | float


class _Tracking(CredentialFreeSpec):
    """Base class of the trackers.

    Attributes:
        parameters: parameters of the tracked run, besides those of the fine-tuning's configuration.
    """

    parameters: Mapping[str, _ParameterValue] = Field(default_factory=dict)

    @field_validator("parameters")
    @classmethod
    def _validate_parameters(cls, parameters: Mapping[str, _ParameterValue]) -> Mapping[str, _ParameterValue]:
        check_values(dict(parameters))
        return parameters


class MLflow(_Tracking):
    """An MLflow tracking server.

    Attributes:
        tracking_uri: URL of the server, as the training's pods reach it.
        experiment: name of the experiment, which is created if it does not exist; None means the name of the DAG or
            pipeline.
        secret: Secret with the key `MLFLOW_TRACKING_TOKEN`, or with `MLFLOW_TRACKING_USERNAME` and
            `MLFLOW_TRACKING_PASSWORD`, for a server that requires a login.
        system_metrics: whether to log the CPU, memory, disk, network and GPUs of the first node while it trains.
    """

    backend: Literal["mlflow"] = "mlflow"
    tracking_uri: Endpoint
    experiment: str | None = Field(default=None, min_length=1, max_length=500)
    secret: Secret | None = None
    system_metrics: bool = False

    @field_validator("tracking_uri")
    @classmethod
    def _validate_tracking_uri(cls, uri: str) -> str:
        return validate_server(uri, "https://mlflow.example.org")


class WandB(_Tracking):
    """A project of Weights & Biases.

    Attributes:
        project: name of the project, which is created if it does not exist; None means the name of the DAG or pipeline.
        entity: user or team that owns the project; None means the default of the API key's owner.
        base_url: URL of a server of your own; None means `https://api.wandb.ai`.
        mode: `online`, or `offline` for files in `/workspace/wandb` that `wandb sync` uploads later.
        secret: Secret with the key `WANDB_API_KEY`, for mode `online`.
    """

    backend: Literal["wandb"] = "wandb"
    project: str | None = Field(default=None, min_length=1, max_length=128)
    entity: str | None = Field(default=None, min_length=1)
    base_url: Endpoint | None = None
    mode: Literal["online", "offline"] = "online"
    secret: Secret | None = None

    @field_validator("project", "entity")
    @classmethod
    def _validate_name(cls, name: str | None) -> str | None:
        if name is not None and NO_PROJECT_CHARACTER.search(name):
            raise invalid_field("", name, "it must not contain spaces or any of / \\ # ? % :")
        return name

    @field_validator("base_url")
    @classmethod
    def _validate_base_url(cls, url: str | None) -> str | None:
        return None if url is None else validate_server(url, "https://wandb.example.org")


class TensorBoard(_Tracking):
    """Event files for TensorBoard on the workspace.

    Attributes:
        log_path: folder below `/workspace`; each tracked run has its own folder in it.
    """

    backend: Literal["tensorboard"] = "tensorboard"
    log_path: str = "tensorboard"

    @field_validator("log_path")
    @classmethod
    def _validate_log_path(cls, path: str) -> str:
        normal = posixpath.normpath(path)
        if path.startswith("/") or ".." in path.split("/") or normal.split("/")[0] in (".", "dataset", "model"):
            rule = "it must be a folder below /workspace, such as tensorboard, and outside of dataset and model"
            raise invalid_field("", path, rule)
        return normal


TRACKERS: Mapping[str, type[_Tracking]] = {"mlflow": MLflow, "wandb": WandB, "tensorboard": TensorBoard}
"""The class of each tracker, by its `backend`."""


def _to_tracking(value: Any) -> Any:
    """Return a tracker from an instance or a dict, whose `backend` determines the class.

    Raises:
        InvalidSpec: the value is neither, or a field is invalid.
    """
    if isinstance(value, _Tracking):
        return value
    if not isinstance(value, Mapping):
        raise invalid_field("", value, "give MLflow(...), WandB(...) or TensorBoard(...)")
    backend = value.get("backend")
    if not isinstance(backend, str) or backend not in TRACKERS:
        raise invalid_field("backend", backend, f"it must be one of {', '.join(TRACKERS)}")
    return TRACKERS[backend].from_object(value)


# Without `InstanceOf` pydantic would try each class of the union with the attributes of the chosen one.
Tracking = Annotated[InstanceOf[MLflow] | InstanceOf[WandB] | InstanceOf[TensorBoard], BeforeValidator(_to_tracking)]
"""A tracker. A dict names its kind under `backend`: `mlflow`, `wandb` or `tensorboard`."""


def needs_workspace(tracking: _Tracking) -> bool:
    """Return whether a tracker writes its files to the workspace."""
    return isinstance(tracking, TensorBoard) or (isinstance(tracking, WandB) and tracking.mode == "offline")

"""Requests that change which model is served."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, invalid_field, to_json_value
from trainjob.spec.base_request import STEP_ALIASES
from trainjob.spec.base_step import BaseStep, ModelFunction, check_program_image
from trainjob.spec.durations import Duration
from trainjob.spec.registry import MLflowRegistry, Registry
from trainjob.spec.resources import Resources
from trainjob.spec.volumes import WORKSPACE, WorkspaceField

_SERVICE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S+")


class SmokeRequest(Spec):
    """A request to the served model, which must be answered with the status 200.

    Attributes:
        url: path below the service's URL, such as `/openai/v1/completions`, or a whole URL.
        body: JSON body of a POST; without it, the request is a GET.
        contains: text that the response must contain.
    """

    url: str
    body: Annotated[dict[str, Any] | None, AfterValidator(to_json_value)] = None
    contains: str = ""

    @field_validator("url")
    @classmethod
    def _validate_url(cls, url: str) -> str:
        if not url.startswith(("/", "http://", "https://")):
            raise invalid_field(
                "", url, "it must be a path such as /v1/models/tickets, or begin with http:// or https://"
            )
        return url


class _ServedModel(BaseStep):
    """Base class of the steps that change which model is served."""

    field_aliases: ClassVar[Mapping[str, str]] = {
        **STEP_ALIASES,
        **dict.fromkeys(("inference_service", "service_name"), "service"),
        **dict.fromkeys(("ready_timeout", "rollout_timeout"), "time_limit"),
        "func": "function",
    }

    service: str | None = None
    service_kind: Literal["InferenceService", "LLMInferenceService"] = "InferenceService"
    adapter: str | None = None
    command: tuple[str, ...] | None = None
    function: ModelFunction | None = None
    registry: Registry | None = None
    alias: str = "champion"
    time_limit: Duration = timedelta(minutes=30)
    workspace: WorkspaceField | None = None
    image: str | None = None
    resources: Resources | None = None

    @property
    def target(self) -> str:
        """KServe's kind, `Command`, or `Registry` if only an alias is set."""
        if self.command or self.function:
            return "Command"
        return self.service_kind if self.service else "Registry"

    @property
    def record_name(self) -> str:
        """Name under which the promotions are recorded."""
        if self.service:
            return self.service
        fields = self.registry.model_dump(exclude={"secret", "version", "author"}) if self.registry else {}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

    @field_validator("service")
    @classmethod
    def _validate_service(cls, name: str | None) -> str | None:
        if name is not None and not _SERVICE.fullmatch(name):
            rule = "at most 63 characters: lower case letters, digits and -, with a letter or digit at both ends"
            raise invalid_field("", name, rule)
        return name

    @field_validator("time_limit")
    @classmethod
    def _validate_time_limit(cls, limit: timedelta) -> timedelta:
        if limit < timedelta(seconds=1):
            raise invalid_field("", f"{limit.total_seconds():g} s", "it must be at least one second")
        return limit

    @model_validator(mode="after")
    def _validate_target(self) -> Self:
        if self.service is None and (self.command or self.function or self.registry is None):
            raise invalid_field("service", None, "name what serves the model, such as an InferenceService")
        if self.command and self.function:
            raise invalid_field("function", "given", "give only one of command and function")
        if self.command == ():
            raise invalid_field("command", [], "it must have at least one word")
        if self.adapter and self.target != "LLMInferenceService":
            raise invalid_field("adapter", self.adapter, "only an LLMInferenceService has adapters")
        if isinstance(self.registry, MLflowRegistry) and self.registry.alias:
            raise invalid_field("registry.alias", self.registry.alias, "give it as alias of the step")
        if self.secret and not self.secret.keys:
            rule = "name the keys that the command or function needs, as in keys: {TOKEN: token}"
            raise invalid_field("secret", self.secret.name, rule)
        check_program_image(self.program, self.image, "Python")
        return self


class Promote(_ServedModel):
    """Step that makes a model the served one, or leaves the one that is served now.

    The service gets the model, becomes ready and answers a request; then the registry's alias is set. If a part fails
    or takes too long, the model before is served again, and the step fails. A killed step continues in its next try.

    Attributes:
        model: address of the model: where a step has exported it, such as `s3://acme/models/tickets/7`, or a folder
            below `/workspace`. Each version needs its own address, because a server may read the files at any time.
        service: name of the `InferenceService` or `LLMInferenceService` in the namespace, which must exist; or any
            name for what `command` or `function` serves. Without it, only the registry's alias is set.
        service_kind: KServe's kind of the service.
        adapter: name of the LoRA adapter of an `LLMInferenceService` that is replaced or added, instead of its model.
        command: command that makes the model in the environment variable `MODEL_URI` the served one, instead of KServe.
            It is run again after a kill, and with the earlier address to roll back; an empty one means none.
        function: function that does the same, with the address as its argument.
        canary_percent: share of the requests that the model gets, with Knative; another `Promote` without it gives it
            all. The registry's alias is set only then.
        smoke_request: a `SmokeRequest`, or a dict of its fields; by default, KServe's list of models or the state of
            the model is requested, and with a command nothing.
        registry: a `ModelRegistry` or `MLflowRegistry`, or a dict of its fields. The version with the alias is
            the one with the model's address, or `version`.
        alias: alias that the version gets, and loses if the promotion is rolled back. In a Kubeflow Model Registry it
            is a property of the model.
        time_limit: longest time until the model is served, and until the one before is served again; by default `30m`.
        workspace: PersistentVolumeClaim of a model below `/workspace`. Its service mounts it, so it needs no copy.
        image: image with Python; by default the runtime's.
        resources: resources of the step's pod.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **_ServedModel.field_aliases,
        **dict.fromkeys(("model_uri", "storage_uri", "model_path"), "model"),
        **dict.fromkeys(("canary", "canary_traffic_percent"), "canary_percent"),
    }

    model: str
    canary_percent: int | None = Field(default=None, ge=1, le=99)
    smoke_request: SmokeRequest | None = None

    @model_validator(mode="after")
    def _validate_model(self) -> Self:
        if self.model.startswith(f"{WORKSPACE}/"):
            if self.workspace is None or not self.workspace.claim:
                raise invalid_field("workspace", None, f"name the PersistentVolumeClaim with {self.model}")
        elif not _ADDRESS.fullmatch(self.model):
            rule = f"it must be an address such as s3://bucket/models/7, or a folder below {WORKSPACE}"
            raise invalid_field("model", self.model, rule)
        if self.canary_percent is not None and self.target != "InferenceService":
            raise invalid_field("canary_percent", self.canary_percent, "only an InferenceService has a canary")
        if (
            self.smoke_request
            and not self.smoke_request.url.startswith("http")
            and self.target in ("Command", "Registry")
        ):
            rule = "it must be a whole URL, because the step does not know that of the service"
            raise invalid_field("smoke_request.url", self.smoke_request.url, rule)
        return self


class Rollback(_ServedModel):
    """Step that undoes a promotion: the model before is served again, and has the alias.

    By default it undoes the promotions of its own workflow run, and does nothing if there are none, or if a later
    promotion or a person has replaced the model.

    Attributes:
        service: name of the service, as in `Promote`.
        service_kind: KServe's kind of the service.
        adapter: name of the LoRA adapter, as in `Promote`.
        command: command that makes the model in the environment variable `MODEL_URI` the served one, as in `Promote`.
        function: function that does the same, as in `Promote`.
        registry: the registry of `Promote`.
        alias: the alias of `Promote`.
        time_limit: longest time until the model before is served; by default `30m`.
        workspace: PersistentVolumeClaim that the step mounts, for its `command`.
        image: image with Python; by default the runtime's.
        resources: resources of the step's pod.
        any_run: whether to undo the newest promotion, of any workflow run.
    """

    any_run: bool = False

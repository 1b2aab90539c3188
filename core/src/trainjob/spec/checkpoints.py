"""Checkpoints of a training: the one from which it starts, and the address of their copies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from trainjob.addresses import STORE_SCHEMES, check_uri, parse_destination
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.volumes import WORKSPACE

_COPY_SCHEMES = tuple(scheme for scheme in STORE_SCHEMES if scheme != "hf")


def _omit_empty(value: Any) -> Any:
    return None if value == "" else value  # of a template without a value


def _validate_uri(uri: str | None) -> str | None:
    if uri is None:
        return None
    if uri.startswith("hf://"):
        rule = "the Hub keeps every version of each checkpoint: give a bucket, such as s3://bucket/checkpoints"
        raise invalid_field("", uri, rule)
    parse_destination(check_uri(uri, "", _COPY_SCHEMES))
    return uri


CheckpointUri = Annotated[str | None, BeforeValidator(_omit_empty), AfterValidator(_validate_uri)]
"""Address in an object store to which a training copies its checkpoints."""


class ResumeFrom(Spec):
    """Conditions for the checkpoint from which a new training starts.

    The newest complete checkpoint of another training that meets all of them is its parent.

    A number means `ResumeFrom(step=...)`, and any other text `ResumeFrom(folder=...)`.

    Attributes:
        folder: output folder of a training, or a folder `checkpoint-N` itself, below `/workspace`. None means the
            step's own output folder. The checkpoints in its `kept_checkpoints` count, too.
        step: number of optimizer steps after which the checkpoint was saved.
        run: run of the workflow that saved it: Airflow's `run_id`, the ID of the KFP run, or `--run-id`.
    """

    folder: str | None = None
    step: int | None = Field(default=None, ge=0)
    run: str | None = None

    _omit_empty = field_validator("folder", "step", "run", mode="before")(_omit_empty)

    @field_validator("folder")
    @classmethod
    def _validate_folder(cls, folder: str | None) -> str | None:
        if folder is None:
            return None
        parts = [part for part in folder.removeprefix(WORKSPACE).split("/") if part not in ("", ".")]
        is_outside = folder.startswith("/") and not f"{folder}/".startswith(f"{WORKSPACE}/")
        if is_outside or not parts or ".." in parts:
            rule = f"it must be a folder below {WORKSPACE}, such as output/nightly or output/nightly/checkpoint-400"
            raise invalid_field("", folder, rule)
        return "/".join(parts)


def _to_resume_from(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        value = (int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text) if text else None
    if isinstance(value, bool) or not isinstance(value, int | str | Mapping | ResumeFrom | None):
        rule = "give a step, a folder below /workspace, or a ResumeFrom with folder, step and run"
        raise invalid_field("", value, rule)
    if isinstance(value, int):
        return ResumeFrom(step=value)
    return ResumeFrom(folder=value) if isinstance(value, str) else value


ResumeFromField = Annotated[ResumeFrom | None, BeforeValidator(_to_resume_from)]

"""Address in an object store to which a training copies its checkpoints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from trainjob.addresses import STORE_SCHEMES, check_uri, parse_destination
from trainjob.spec.base import invalid_field

_SCHEMES = tuple(scheme for scheme in STORE_SCHEMES if scheme != "hf")


def _omit_empty(value: Any) -> Any:
    return None if value == "" else value  # of a template without a value


def _validate(uri: str | None) -> str | None:
    if uri is None:
        return None
    if uri.startswith("hf://"):
        rule = "the Hub keeps every version of each checkpoint: give a bucket, such as s3://bucket/checkpoints"
        raise invalid_field("", uri, rule)
    parse_destination(check_uri(uri, "", _SCHEMES))
    return uri


CheckpointUri = Annotated[str | None, BeforeValidator(_omit_empty), AfterValidator(_validate)]

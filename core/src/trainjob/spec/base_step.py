"""Base class of the steps, the place of their programs, and functions that they send."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, model_validator
from typing_extensions import Self

from trainjob.spec.base import invalid_field
from trainjob.spec.base_request import BaseRequest
from trainjob.spec.credential_checks import check_source
from trainjob.spec.job import Program, check_suspension
from trainjob.spec.secrets import CredentialFreeSpec, Env, Secret
from trainjob.spec.volumes import check_workspace_is_free
from trainjob.version import VERSION


# `trainjob.function_source` is imported late, because few DAGs have such a function.
def _to_function(value: Any) -> Any:
    """Return the function of a text with its source."""
    from trainjob.function_source import function_from_source

    return function_from_source(value, field="") if isinstance(value, str) else value


def _check_function(function: Callable[..., Any]) -> Callable[..., Any]:
    from trainjob.function_source import extract_source

    check_source(extract_source(function, field="")[0], "")
    try:
        inspect.signature(function).bind("/workspace/export")
    except TypeError as error:
        rule = f"it must accept the path or address of a model as its only argument: {error}"
        raise invalid_field("", function.__name__, rule) from None
    return function


def _read_source(function: Callable[..., Any]) -> str:
    from trainjob.function_source import read_source

    return read_source(function)


ModelFunction = Annotated[
    Callable[..., Any],
    BeforeValidator(_to_function),
    AfterValidator(_check_function),
    PlainSerializer(_read_source),
]
"""A function of a model's path or address; its source identifies the request."""


class BaseStep(BaseRequest, CredentialFreeSpec):
    """Base class of the steps whose programs are ours.

    Attributes:
        env: environment variables by name; secrets as `SecretKeyReference`.
        secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
        program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so that
            any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
    """

    env: Env | None = None
    secret: Secret | None = None
    program: Program = "packed"

    @model_validator(mode="after")
    def _validate_shared_fields(self) -> Self:
        check_workspace_is_free(self.volumes, taken_by="the step's workspace")
        check_suspension(self, self.queue, None)
        return self


def check_program_image(program: Program, image: str | None, packages: str) -> None:
    """Refuse `program="image"` without an image.

    The Trainer's images contain no `trainjob`.

    Args:
        program: the step's field.
        image: the step's image.
        packages: other content that the image needs, for the error.

    Raises:
        InvalidSpec: the step has no image.
    """
    if program == "image" and image is None:
        needed = f"trainjob {VERSION}, {packages}"
        raise invalid_field("image", None, f"program='image' runs the code of the image: name one with {needed}")

"""Packing of the code that a request names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainjob.errors import InvalidSpec
from trainjob.project_code.packing import pack
from trainjob.spec import BuiltinTrainer, Code, TrainJob

T = TypeVar("T")


def pack_request(request: T, base: Path | None = None) -> T:
    """Return a request with its code packed; any other request is returned unchanged.

    Args:
        request: the request.
        base: folder at which a relative path of the code starts; by default the working directory.

    Raises:
        InvalidSpec: the code cannot be sent.
    """
    if not isinstance(request, TrainJob) or isinstance(request.trainer, BuiltinTrainer):
        return request
    if not isinstance(code := request.trainer.code, Code):
        return request
    try:
        packed = pack(code, base or Path.cwd())
    except InvalidSpec as error:
        problems = [replace(problem, field=f"trainer.{problem.field}") for problem in error.problems]
        raise InvalidSpec(problems, hint=error.hint) from None
    return request.model_copy(update={"trainer": request.trainer.model_copy(update={"code": packed})})

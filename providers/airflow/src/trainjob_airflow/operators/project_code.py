"""The code of a project, packed on the worker when the task runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.errors import InvalidSpec

if TYPE_CHECKING:
    from trainjob.spec import Code, PackedCode, TrainJob


def pack_code(step: TrainJob, code: Code, folder: str, log: Callable[[str], None]) -> TrainJob:
    """Return a step with its code packed, and log what travels to the pods.

    Args:
        step: the step; it stays unchanged, because Airflow shows its fields as rendered templates.
        code: code of its trainer.
        folder: folder of the DAG's file, at which a relative path starts.
        log: function that receives the line of the log.

    Raises:
        InvalidSpec: the code cannot be sent; the error names the folder or the archive.
    """
    # Only here: the modules that parse a DAG file do not need them.
    from trainjob.project_code import pack_request

    place = code.path if "://" in code.path else str(Path(folder, code.path).absolute())
    try:
        packed = pack_request(step, Path(folder))
    except InvalidSpec as error:
        raise InvalidSpec(error.problems, hint=error.hint, place=f"The code in {place} can't be sent:") from None
    sent: Any = packed.trainer
    log(_describe(sent.code, place))
    return packed


def _describe(code: PackedCode, path: str) -> str:
    """Return the line of the log about the code that travels."""
    if code.uri:
        return f"code: sha256:{code.sha256}, from {path}"
    count = f"{code.files} file{'s' * (code.files != 1)}"
    commit = f"commit {code.commit}" if code.commit else "no commit"
    branch = f" ({code.branch})" if code.branch else ""
    changes = ", modified since" if code.modified else ""
    size = f"{code.size / 1e3:,.1f} kB compressed"
    return f"code: sha256:{code.sha256}, {count}, {size}, {commit}{branch}{changes}, from {path}"

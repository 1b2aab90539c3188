"""Identity of a request: its hash, and the names of its TrainJobs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from trainjob.function_source import read_source
from trainjob.manifest.code import find_code
from trainjob.spec import BuiltinTrainer, CustomTrainer, FineTune, FrameworkConfig, Step, TrainJob
from trainjob.spec.base_request import MAX_NAME_LENGTH, WaitSettings

_MAX_ATTEMPTS = 100
UNHASHED_FIELDS = ("name", "program", "tracking", "watchdog", "code", "options", *WaitSettings.model_fields)
"""Fields of a step that no hash has; the options and the code of a TrainJob are in its other fields."""
_CODE_FIELDS = ("sha256", "requirements")


def spec_hash(step: Step) -> str:
    """Return 16 hex digits that identify the request of a step.

    The hash is the same in every process, Python version and later release. It is computed from the request and not
    from the manifest. A new release that builds another manifest for the same request must not take a running job for a
    different one. Fields at their defaults do not count, so a new field changes no hash. The name does not count, nor
    where the program's code comes from, nor the experiment tracker, nor the watchdog, nor the settings of the wait.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    return hash_content(step, dump_request(step))


def dump_request(step: Step) -> dict[str, Any]:
    """Return the request of a step as JSON values, without the values at their defaults.

    Raises:
        InvalidSpec: the source of a function cannot be read, or the code of a project is not packed.
    """
    unhashed: dict[str, Any] = {**dict.fromkeys(UNHASHED_FIELDS, True), "trainer": {"func"}}
    content = step.model_dump(mode="json", exclude_defaults=True, exclude=unhashed)
    if isinstance(step, TrainJob) and isinstance(step.trainer, CustomTrainer):
        content["function"] = read_source(step.trainer.func)
    if code := find_code(step):  # its place and its commit do not count
        content["trainer"]["code"] = code.model_dump(include=set(_CODE_FIELDS), exclude_defaults=True)
    return content


def hash_content(step: Step, content: Mapping[str, Any]) -> str:
    """Return 16 hex digits for a part of a step's request."""
    canonical: dict[str, Any] = {"kind": type(step).__name__, "request": content}
    if config := get_config(step):
        canonical["framework"] = config.framework
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def get_config(step: Step) -> FrameworkConfig | None:
    """Return the configuration of a training with a framework; None for other requests."""
    if isinstance(step, FineTune):
        return step.config
    trainer = step.trainer if isinstance(step, TrainJob) else None
    return trainer.config if isinstance(trainer, BuiltinTrainer) else None


def job_name(prefix: str, key_digest: str, attempt: int) -> str:
    """Return the name of a run key's n-th TrainJob: readable and the same in every process.

    It has at most 33 characters. It starts with a letter, which the API requires from Trainer 2.1 on. It leaves space
    for the longest pod name that JobSet derives from it (see `trainjob.spec.job`).

    Args:
        prefix: start of the name, such as the task's name; characters that a name cannot contain become `-`.
        key_digest: the run key's digest.
        attempt: the attempt's number, from 1.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", prefix.lower()).strip("-")
    if not readable[:1].isalpha():
        readable = f"job-{readable}".strip("-")
    return f"{readable[:MAX_NAME_LENGTH].strip('-')}-{_name_suffix(key_digest, attempt)}"


def find_attempt(name: str, key_digest: str, labelled: int = 0) -> int:
    """Return the attempt for which [job_name][] returned a name; 0 if there is none.

    Args:
        name: name of a TrainJob.
        key_digest: digest of a run key.
        labelled: the attempt in its label, which is tried first; without it, attempts above 100 are not found.
    """
    suffix = name.rpartition("-")[2]
    return next((n for n in (labelled, *range(1, _MAX_ATTEMPTS + 1)) if n and _name_suffix(key_digest, n) == suffix), 0)


def _name_suffix(key_digest: str, attempt: int) -> str:
    return hashlib.sha256(f"{key_digest}/{attempt}".encode()).hexdigest()[:8]

"""Identity of a request: its hash, and the names of its TrainJobs."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from trainjob.function_source import read_source
from trainjob.spec import BuiltinTrainer, CustomTrainer, FineTune, Step, TrainJob
from trainjob.spec.framework import DEFAULT_FRAMEWORK
from trainjob.spec.job import END_POLICY_FIELDS, MAX_NAME_LENGTH

_MAX_ATTEMPTS = 100
_UNHASHED_FIELDS = dict.fromkeys(("name", "program", "tracking", *END_POLICY_FIELDS), True)


def spec_hash(step: Step) -> str:
    """Return 16 hex digits that identify the request of a step.

    The hash is the same in every process, Python version and later release. It is computed from the request and not
    from the manifest. A new release that builds another manifest for the same request must not take a running job for a
    different one. Fields at their defaults do not count, so a new field changes no hash. The name does not count, nor
    where the program's code comes from, nor the experiment tracker, nor the fields that say what happens to the
    TrainJob after its end. A framework counts unless it is TorchTune, the only one when the first hashes were
    written.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    framework = _get_framework_name(step)
    unhashed: dict[str, Any] = {**_UNHASHED_FIELDS, "trainer": {"func"}}
    if framework != DEFAULT_FRAMEWORK:
        unhashed["config"] = True  # a comparison to its default would load TorchTune
    content = step.model_dump(mode="json", exclude_defaults=True, exclude=unhashed)
    if framework != DEFAULT_FRAMEWORK and isinstance(step, FineTune):
        content["config"] = step.config.model_dump(mode="json", exclude_defaults=True)
    if isinstance(step, TrainJob) and isinstance(step.trainer, CustomTrainer):
        content["function"] = read_source(step.trainer.func)
    canonical: dict[str, Any] = {"kind": type(step).__name__, "request": content}
    if framework != DEFAULT_FRAMEWORK:
        canonical["framework"] = framework
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _get_framework_name(step: Step) -> str:
    """Return the framework of a training; the default framework for other requests."""
    if isinstance(step, FineTune):
        return step.config.framework
    if isinstance(step, TrainJob) and isinstance(step.trainer, BuiltinTrainer):
        return step.trainer.config.framework
    return DEFAULT_FRAMEWORK


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


def find_attempt(name: str, key_digest: str) -> int:
    """Return the attempt for which [job_name][] returned a name; 0 above 100.

    Args:
        name: name of a TrainJob.
        key_digest: digest of the run key in its annotation.
    """
    suffix = name.rpartition("-")[2]
    return next((n for n in range(1, _MAX_ATTEMPTS + 1) if _name_suffix(key_digest, n) == suffix), 0)


def _name_suffix(key_digest: str, attempt: int) -> str:
    return hashlib.sha256(f"{key_digest}/{attempt}".encode()).hexdigest()[:8]

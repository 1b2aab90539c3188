"""The identity of a request: its hash, and the names of its TrainJobs."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from trainjob.manifest.function import source_text
from trainjob.spec import CustomTrainer, Step, TrainJob
from trainjob.spec.job import ENDING, LONGEST_NAME

_ELSEWHERE = dict.fromkeys(("name", *ENDING), True)


def spec_hash(step: Step) -> str:
    """16 hex digits of what a step asks for; the same in every process, Python version, and later release.

    It is made of the request and not of the manifest: a new release that builds another manifest for the same request
    must not take a running job for a different one. Fields at their defaults do not count, so that a new field changes
    nothing. The name does not count either, nor what is to become of the TrainJob afterwards.

    Raises:
        InvalidSpec: a function's source can't be read.
    """
    content = step.model_dump(mode="json", exclude_defaults=True, exclude={**_ELSEWHERE, "trainer": {"func"}})
    if isinstance(step, TrainJob) and isinstance(step.trainer, CustomTrainer):
        content["function"] = source_text(step.trainer.func)
    canonical: dict[str, Any] = {"kind": type(step).__name__, "request": content}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def job_name(prefix: str, key_digest: str, attempt: int) -> str:
    """Return the name of a run key's n-th TrainJob: readable, the same in every process, at most 33 characters.

    It starts with a letter, as the API demands from Trainer 2.1 on, and leaves room for the longest pod name that
    JobSet makes of it (see `trainjob.spec.job`).

    Args:
        prefix: what it should begin with, such as the task's name; what a name can't hold becomes `-`.
        key_digest: the run key's digest.
        attempt: the attempt's number, from 1.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", prefix.lower()).strip("-")
    if not readable[:1].isalpha():
        readable = f"job-{readable}".strip("-")
    unique = hashlib.sha256(f"{key_digest}/{attempt}".encode()).hexdigest()[:8]
    return f"{readable[:LONGEST_NAME].strip('-')}-{unique}"

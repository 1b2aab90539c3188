"""A hash that tells whether two requests ask for the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from trainjob.manifest.function import source_text
from trainjob.spec import CustomTrainer, Step, TrainJob
from trainjob.spec.job import ENDING

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

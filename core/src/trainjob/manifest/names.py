"""Names of TrainJobs."""

from __future__ import annotations

import hashlib
import re

from trainjob.spec.job import LONGEST_NAME


def job_name(prefix: str, key_digest: str, attempt: int) -> str:
    """The name of a run key's n-th TrainJob: readable, the same for everybody who asks, at most 33 characters.

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

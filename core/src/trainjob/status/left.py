"""TrainJobs that we have ended as failed and left where they are, for a person to look at.

Their status is the cluster's to write, so an annotation says it, and every verdict reads it: such a TrainJob has
failed, whatever its pods still do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.status.reading import table, text, true_conditions

FAILED_MARK = "trainjob.dev/failed"
_LONGEST = 1000  # characters of the message


def failed_mark(reason: str, message: str, step: str, at: str) -> str:
    """The annotation's text.

    Args:
        reason: why, as one word.
        message: why, for a person.
        step: the replicated job that failed.
        at: RFC 3339 time.
    """
    return json.dumps({"reason": reason, "message": message[:_LONGEST], "step": step, "at": at})


def left_as_failed(job: Any) -> Mapping[str, Any]:
    """What the annotation says: reason, message, step, at; empty when there is none."""
    mark = text(job, "metadata", "annotations", FAILED_MARK)
    try:
        told = json.loads(mark) if mark else {}
    except (ValueError, RecursionError):
        told = {}
    return {**table(told), "reason": text(told, "reason") or "Failed"} if mark else {}


def is_left_at_work(job: Any) -> bool:
    """Whether its pods may still be at work, though it has failed for us."""
    ended = {"Complete", "Failed"} & true_conditions(job).keys()
    return bool(left_as_failed(job)) and not ended and not table(job, "spec").get("suspend")

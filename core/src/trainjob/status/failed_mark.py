"""Annotation of a TrainJob that this project ended as failed and retained.

A retained TrainJob can be inspected. Only the cluster writes its status, so an annotation records the failure. Every
verdict reads the annotation: such a TrainJob has failed, whatever its pods still do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.status.nested_fields import get_mapping, get_str, true_conditions

FAILED_MARK = "trainjob.dev/failed"
_MAX_MESSAGE = 1000  # characters of the message


def format_failed_mark(reason: str, message: str, step: str, time: str, *, awaits_deletion: bool = False) -> str:
    """Return the text of the annotation.

    Args:
        reason: reason of the failure, as one word.
        message: reason of the failure, for users; cut after 1000 characters.
        step: replicated job that failed.
        time: RFC 3339 time of the failure.
        awaits_deletion: whether the waiter deletes the TrainJob after it has reported the failure.
    """
    deletion = {"awaits_deletion": True} if awaits_deletion else {}
    return json.dumps({"reason": reason, "message": message[:_MAX_MESSAGE], "step": step, "at": time, **deletion})


def read_failed_mark(job: Any) -> Mapping[str, Any]:
    """Return the content of the annotation; empty if it does not exist.

    The keys are `reason`, `message`, `step` and `at`, and `awaits_deletion` if it is true. Of an annotation that can't
    be read, only the reason `Failed` is returned.
    """
    mark = get_str(job, "metadata", "annotations", FAILED_MARK)
    try:
        content = json.loads(mark) if mark else {}
    except (ValueError, RecursionError):
        content = {}
    return {**get_mapping(content), "reason": get_str(content, "reason") or "Failed"} if mark else {}


def awaits_deletion(job: Any) -> bool:
    """Return whether the waiter was going to report the failure and delete the TrainJob.

    If it still exists without a waiter, the waiter has died before that, and nobody has got the failure.
    """
    return may_have_running_pods(job) and read_failed_mark(job).get("awaits_deletion") is True


def may_have_running_pods(job: Any) -> bool:
    """Return whether a TrainJob that is marked as failed may still have running pods.

    A suspended one that awaits its deletion is in a queue, which may resume it.
    """
    ended, mark = {"Complete", "Failed"} & true_conditions(job).keys(), read_failed_mark(job)
    is_held = get_mapping(job, "spec").get("suspend") and mark.get("awaits_deletion") is not True
    return bool(mark) and not ended and not is_held

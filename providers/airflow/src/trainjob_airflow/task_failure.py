"""Reason of a task's failure, stored as an XCom.

A failed TrainJob is deleted by default, with its events and logs. The XCom keeps what the error of the task says, so
that it can be read without the task's log.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainjob.errors import JobFailed, TrainJobError
from trainjob_airflow.version_compat import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from trainjob.lifecycle import JobReference

FAILURE_KEY = "failure"
"""Key of the XCom. Its value is that of [build_failure][]."""
_MAX_LINES, _MAX_LINE = 50, 1000
_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def store_failure(context: Context, get_reference: Callable[[], JobReference | None]) -> Iterator[None]:
    """Store an error of the code inside as the XCom `failure`, and raise it again.

    Args:
        context: context of the task.
        get_reference: returns the TrainJob; None if the error occurred before it was known.

    Raises:
        TrainJobError: the error of the code inside.
    """
    try:
        yield
    except TrainJobError as error:
        try:
            context["ti"].xcom_push(FAILURE_KEY, build_failure(error, get_reference()))
        except Exception:
            _LOGGER.debug("The XCom %r could not be written", FAILURE_KEY, exc_info=True)
        raise


def build_failure(error: TrainJobError, reference: JobReference | None) -> dict[str, Any]:
    """Return the XCom of a failure as JSON values.

    Control characters are shown as text, and values that Airflow knows as secrets as `***`. Lists have at most 50
    texts, and a text has at most 1,000 characters.

    Args:
        error: error of the task.
        reference: the TrainJob; None if it is not known.

    Returns:
        `kind` (class of the error), `trainjob` (namespace and name), `uid`, `attempt`, `phase`, `category`, `reason`,
        `message`, `step`, `rank`, `exit_code`, `hang` (of the watchdog), `events`, `log` (last lines of the container
        that failed first) and `hint`. Values that are not known are empty or None.
    """
    outcome = error.outcome if isinstance(error, JobFailed) else None
    rank, exit_code = outcome.first_failure if outcome else (None, None)
    evidence = {
        "phase": outcome.phase.value if outcome else "",
        "category": outcome.category.value if outcome else "",
        "reason": _clean(outcome.reason) if outcome else "",
        "message": _clean(outcome.message if outcome else error.message),
        "step": outcome.step if outcome else "",
        "rank": rank,
        "exit_code": exit_code,
        "hang": _clean(outcome.hang) if outcome else "",
        "events": _clean_lines(outcome.events if outcome else ()),
        "log": _clean_lines(outcome.log_tail if outcome else ()),
    }
    return {
        "kind": type(error).__name__,
        "trainjob": str(reference) if reference else "",
        "uid": reference.uid if reference else "",
        "attempt": reference.attempt if reference else None,
        **evidence,
        "hint": error.hint,
    }


def _clean_lines(lines: Sequence[str]) -> list[str]:
    return [_clean(line) for line in lines[-_MAX_LINES:]]


def _clean(text: str) -> str:
    from trainjob.control_characters import escape_control_characters

    shown = redact(escape_control_characters(text))
    return shown if len(shown) <= _MAX_LINE else f"{shown[:_MAX_LINE]}..."

"""Retries of a task that states none.

A try that loses its worker fails, and only a further try can adopt its TrainJob. So the operators have retries of their
own where neither the task, `default_args` nor the configuration (`[core] default_task_retries`) state a number. With
these retries, a training that has failed by itself is not repeated: only errors that another try can help are retried.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator

from trainjob.errors import JobFailed
from trainjob_airflow.version_compat import AirflowFailException, conf


class DefaultRetries(enum.IntEnum):
    """A number of retries that nobody has stated.

    Airflow's `partial` reads the default of an operator's `retries` from its signature, and converts every true value
    of another type than int (Airflow 3.3, `BaseOperator._convert_retries`). This value is false, so that a mapped
    operator gets the object itself. Airflow serializes a member of an Enum as its plain number, which its database and
    the messages of its processes need.
    """

    TWO = 2

    def __bool__(self) -> bool:
        return False


def choose_default_retries() -> int:
    """Return the default of `retries` for the operators.

    A 0 in airflow.cfg is not a choice of the user, because Airflow writes its defaults into each airflow.cfg that it
    creates. A 0 in the environment is.
    """
    configured: int = conf.getint("core", "default_task_retries", fallback=0)
    is_chosen = configured != 0 or "AIRFLOW__CORE__DEFAULT_TASK_RETRIES" in os.environ
    return configured if is_chosen else DefaultRetries.TWO


DEFAULT_RETRIES = choose_default_retries()
"""Default of `retries` for the operators that create TrainJobs."""


@contextlib.contextmanager
def fail_without_retry(*, has_default_retries: bool) -> Iterator[None]:
    """Raise an `AirflowFailException` in place of a failure that another try would repeat.

    Args:
        has_default_retries: whether the retries of the task are nobody's choice; otherwise nothing is replaced.

    Raises:
        AirflowFailException: the TrainJob failed for a reason that another try does not change, such as an error of its
            program or too little memory. The exception has the same message.
    """
    try:
        yield
    except JobFailed as error:
        if has_default_retries and not error.retryable:
            raise AirflowFailException(str(error)) from error
        raise

"""Arguments of triggers that another version of the provider has stored.

During an upgrade, workers and triggerers have different versions. A trigger that Airflow cannot create fails its task.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable


def ignore_arguments(trigger: type, names: Iterable[str]) -> None:
    """Log the arguments that only a newer version of the trigger has, once per process."""
    if unknown := tuple(sorted(names)):
        _log_ignored(trigger.__name__, unknown)


@functools.cache
def _log_ignored(trigger: str, names: tuple[str, ...]) -> None:
    logging.getLogger(__name__).info(
        "%s ignores the arguments %s of a newer version of the provider", trigger, ", ".join(names)
    )

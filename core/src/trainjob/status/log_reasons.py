"""The reason of a failure in the last lines of the container that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainjob.errors import DIVERGED, INSTALLATION_FAILED, NO_CREDENTIALS, TOO_LITTLE_SPACE
from trainjob.status.failure_rules import Category
from trainjob.status.storage_messages import is_storage_full

# Parts of the last lines of this project's programs, with the category that each means. The training's own line is the
# end of a traceback, which torchrun repeats after its own error.
_PROGRAM_FAILURES = {
    f": failed: {INSTALLATION_FAILED}": Category.INSTALLATION,
    f": failed: {NO_CREDENTIALS}": Category.CONFIGURATION,
    f": failed: {TOO_LITTLE_SPACE}": Category.STORAGE_FULL,
    f"Diverged: {DIVERGED}": Category.DIVERGED,
}
# Messages of `python -m` (Python 3.10 to 3.13) for a program that the image lacks, and of `trainjob.version`.
_NO_PROGRAM = re.compile(
    r"Error while finding module specification for 'trainjob\.|: No module named trainjob\."
    r"|: failed: image cannot be trainjob "
)
# A line may begin with its source in brackets: `[node-1] ` of a tail with lines of another rank, `[rank0]: ` of torch
# (2.3 and later), `[default0]:` of torchrun.
_SOURCE = r"(?:\[[\w/.-]{1,300}\]:? ?){0,2}"
# The programs of this project end with `PROGRAM: failed: REASON`.
_OWN_REASON = re.compile(rf"{_SOURCE}[a-z]{{1,20}}: failed: (.+)")
# The end of a Python traceback. torchrun's own error has no message in its line.
_EXCEPTION = re.compile(rf"{_SOURCE}((?:\w{{1,100}}\.){{0,10}}(?:\w{{0,100}}(?:Error|Exception)|Diverged): .*\S.*)")
_MAX_REASON = 500  # characters of a reason


def find_reason(log_tail: Sequence[str]) -> str:
    """Return the reason that a failed container printed; empty if it printed none.

    It is the last line of a program of this project that begins with `failed: `, or the end of the last traceback of
    Python.
    """
    for pattern in (_OWN_REASON, _EXCEPTION):
        if found := [match for line in log_tail if (match := pattern.fullmatch(line))]:
            reason = str(found[-1][1]).strip()
            return reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}…"
    return ""


def categorize_log(log_tail: Sequence[str]) -> Category | None:
    """Return the category of the failure that the last lines of the container show, or None."""
    if is_storage_full(log_tail):  # first, because pip fails on a full disk, too, and a retry does not help then
        return Category.STORAGE_FULL
    if found := [each for text, each in _PROGRAM_FAILURES.items() if any(text in line for line in log_tail)]:
        return found[0]
    return Category.PROGRAM if any(_NO_PROGRAM.search(line) for line in log_tail) else None

"""The reason of a failure in the last lines of the container that failed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainjob.errors import DIVERGED, HUNG, INSTALLATION_FAILED, NO_CREDENTIALS, TOO_LITTLE_SPACE
from trainjob.status.failure_rules import Category
from trainjob.status.storage_messages import is_storage_full
from trainjob.status.watchdog import RankEnd, name_signal

# Parts of the last lines of this project's programs, with the category that each means. The training's own line is the
# end of a traceback, which torchrun repeats after its own error.
_PROGRAM_FAILURES = {
    f": failed: {INSTALLATION_FAILED}": Category.INSTALLATION,
    f": failed: {NO_CREDENTIALS}": Category.CONFIGURATION,
    f": failed: {TOO_LITTLE_SPACE}": Category.STORAGE_FULL,
    f"Diverged: {DIVERGED}": Category.DIVERGED,
    f"watchdog: failed: {HUNG}": Category.HUNG,
    f"watchdog: failed: {DIVERGED}": Category.DIVERGED,
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
# torch 2.13, distributed/elastic/multiprocessing/errors/__init__.py: the last lines of a torchrun whose process failed.
# A line of the watchdog may be among them.
_ROOT_CAUSE = re.compile(
    rf"Root Cause \(first observed failure\):(?:\n.*){{0,5}}\n{_SOURCE} +rank +: (\d{{1,7}}) \(local_rank: \d{{1,7}}\)"
    rf"(?:\n.*)?\n{_SOURCE} +exitcode +: (-?\d{{1,3}}) "
)
_USUAL_CAUSES: Mapping[int, str] = {
    signal.SIGKILL: ", as Linux ends a process if memory is exhausted",
    signal.SIGBUS: ", often because /dev/shm is full",
}


@dataclass(frozen=True)
class ProcessFailure:
    """The first failed process of a training, as torchrun or a watchdog reports it.

    torchrun itself ends with exit code 1, whatever has happened.

    Attributes:
        rank: rank of the process among all processes of the training.
        exit_code: its exit code; -9 if signal 9 ended it.
        step: last step that it has completed; None if no watchdog reports one.
    """

    rank: int
    exit_code: int
    step: int | None = None

    @property
    def reason(self) -> str:
        """The signal that ended it, with its usual cause; empty if it ended by itself."""
        if self.exit_code >= 0:
            return ""
        number, after = -self.exit_code, "" if self.step is None else f" after step {self.step}"
        return f"rank {self.rank} was ended by {name_signal(number)}{after}{_USUAL_CAUSES.get(number, '')}"

    def with_step(self, ends: Sequence[RankEnd]) -> ProcessFailure:
        """Return the failure with the last step from the ends of ranks, the last of which counts."""
        return replace(self, step=next((end.step for end in reversed(ends) if end.rank == self.rank), None))


def find_failed_process(log_tail: Sequence[str]) -> ProcessFailure | None:
    """Return the process that torchrun names as the root cause; None if it names none."""
    reports = list(_ROOT_CAUSE.finditer("\n".join(log_tail)))  # the last one is of the end
    return ProcessFailure(int(reports[-1][1]), int(reports[-1][2])) if reports else None


def find_killed_process(
    log_tail: Sequence[str], others: Iterable[Sequence[str]], ends: Iterable[RankEnd] = ()
) -> ProcessFailure | None:
    """Return the killed process of another container that is the cause of a failure.

    The other processes lose their connections to it, and may be seen to fail first. SIGTERM is no cause: torchrun sends
    it to the others.

    Args:
        log_tail: last lines of the container that failed first.
        others: last lines of each container.
        ends: ends of ranks of other pods shortly before, as their watchdogs have written them; the launcher may not
            have had the time to report one.
    """
    process = find_failed_process(log_tail)
    if process is None or process.exit_code < 0:
        return None
    found = [other for lines in others if (other := find_failed_process(lines))]
    found += [ProcessFailure(end.rank, -end.signal) for end in ends if end.signal]
    return next((other for other in found if other.exit_code < 0 and other.exit_code != -signal.SIGTERM), None)


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

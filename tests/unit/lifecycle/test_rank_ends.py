"""Which ends of ranks may be the cause of a failure."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from tests.unit.status.test_status_outcome import pod, terminated_state
from trainjob.client import LogLine
from trainjob.client.log_lines import LoggedContainer
from trainjob.lifecycle.evidence import _list_ends_before
from trainjob.status.pods import find_failures
from trainjob.status.watchdog import RankEnd

FAILED_AT = datetime(2026, 1, 1, 0, 1, 0, tzinfo=timezone.utc)
[FAILURE] = find_failures([pod(0, state=terminated_state(1))])
KILLED = RankEnd(3, 9, 41)


def logs(rank, seconds):
    """Return logs with the end of a rank of a node, seconds after the failure."""
    time = None if seconds is None else (int(FAILED_AT.timestamp()) + seconds, b"0" * 9)
    line = LogLine(f"node-{rank}", KILLED.to_line(), log=LoggedContainer.of(pod(rank), "node"), time=time)
    return SimpleNamespace(rank_ends=[(line, KILLED)])


@pytest.mark.parametrize(
    ("rank", "seconds", "is_cause"),
    [(1, 0, True), (1, -40, True), (1, 3, True), (1, -90, False), (1, 20, False), (1, None, False), (0, 0, False)],
)
def test_only_ends_in_other_pods_about_the_time_of_the_failure_are_its_cause(rank, seconds, is_cause):
    """The launcher of the failed pod ends the other ranks in it, and the Job controller ends the other pods."""
    assert _list_ends_before(FAILURE, logs(rank, seconds)) == ([KILLED] if is_cause else [])


def test_without_a_failed_container_nothing_is_its_cause():
    assert _list_ends_before(None, logs(1, 0)) == []

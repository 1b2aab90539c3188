"""Tests of what pod statuses show about the runs of a container, and which run's log is read."""

from __future__ import annotations

import pytest

from tests.support.log_endpoint import CONTAINER, LogEndpoint, read_lines
from trainjob.client.container_log import ContainerLog
from trainjob.client.log_resume import OtherLog

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
ENDED = {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z"}
SECOND = 10**9


def pod(**metadata):
    return {"metadata": {"uid": "u", **metadata}, "spec": {"restartPolicy": "OnFailure"}}


def status(restarts=0, **state):
    return {"name": "node", "restartCount": restarts, **(state or RUNNING)}


def observe(*statuses, newest_written=None):
    log = ContainerLog(CONTAINER, newest_written, print)
    for each in statuses:
        log.observe(pod(), each, deleted=False)
    return log


def test_a_running_container_is_read_and_its_previous_run_first():
    log = observe(status())
    assert (log.run, log.later_runs, log.is_readable, log.has_ended) == (0, 0, True, False)
    log = observe(status(4))
    assert (log.run, log.later_runs, log.is_readable, log.has_ended) == (3, 1, True, True)
    log.begin_run(4)
    assert (log.later_runs, log.is_readable, log.has_ended) == (0, True, False)
    log.begin_run(5)
    assert not log.is_readable


@pytest.mark.parametrize(("started", "readable"), [("1970-01-01T00:00:00Z", False), ("2026-01-01T00:00:00Z", True)])
def test_a_command_that_could_not_start_has_no_log(started, readable):
    assert observe(status(state={"terminated": {"exitCode": 128, "startedAt": started}})).is_readable == readable


def test_a_container_that_waits_for_a_restart_has_ended():
    log = observe(status(), status(state={"waiting": {}}, lastState={"terminated": ENDED}))
    assert (log.has_ended, log.is_final, log.later_runs) == (True, False, 1)
    log.begin_run(1)
    assert not log.is_readable
    log.observe(pod(), status(1), deleted=False)
    assert (log.is_readable, log.later_runs) == (True, 0)


def test_a_deleted_pod_has_ended():
    log = observe(status())
    log.observe(pod(deletionTimestamp="2026-01-01T00:00:00Z"), status(), deleted=False)
    assert (log.is_deleting, log.is_deleted, log.has_ended) == (True, False, False)
    log.observe(pod(), status(), deleted=True)
    assert log.is_deleted
    assert log.has_ended


def test_an_older_status_changes_nothing():
    """The list at the end of a wait may be newer than the next event of the watch."""
    ended = status(state={"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"}})
    log = observe(ended, status(), status(state={"waiting": {}}))
    assert (log.is_readable, log.has_ended, log.is_final) == (True, True, True)
    log = observe(status(1), status(state={"waiting": {}}, lastState={"terminated": ENDED}), status())
    assert (log.run, log.later_runs, log.is_readable) == (0, 1, True)


def test_a_run_that_its_log_shows_first_is_known_before_its_status():
    log = observe(status())
    log.observe_next_run()
    assert (log.later_runs, log.has_ended, log.is_readable) == (1, True, True)
    log.observe(pod(), status(state={"terminated": ENDED}), deleted=False)  # a late status of the first run
    assert log.later_runs == 1


def read_log(log, text, seconds):
    read_lines(log.reader, LogEndpoint([(seconds * SECOND, "F", text)]).respond(None, 1), known_logs=log.known_logs)


def test_a_log_that_was_read_for_an_earlier_run_is_continued():
    log = observe(status(1))
    read_log(log, b"second", 2)
    log.begin_run(1)
    with pytest.raises(OtherLog) as other:
        read_log(log, b"second", 2)
    assert log.continue_known_log(other.value.time)  # the log of the first run was missed
    assert log.reader.newest == other.value.time


def test_a_log_that_was_read_in_place_of_a_lost_end_is_no_missed_run():
    log = observe(status(1))
    read_log(log, b"first", 1)
    log.read_extra_log()
    read_log(log, b"second", 2)
    log.begin_run(1)
    with pytest.raises(OtherLog) as other:
        read_log(log, b"second", 2)
    assert not log.continue_known_log(other.value.time)


def test_the_reader_of_the_next_run_is_kept_until_its_turn():
    log = observe(status())
    lines = LogEndpoint([(SECOND, "F", b"next")]).respond(None, 1)
    read_lines(log.reader, lines)
    log.keep_reader_for_next_run()
    assert log.reader.newest is None
    log.begin_run(1)
    assert log.reader.newest is not None


@pytest.mark.parametrize(("written", "is_missing"), [(None, False), (1, True), (2, False), (5, False)])
def test_a_log_that_begins_after_the_written_lines_has_a_gap(written, is_missing):
    log = observe(status(), newest_written=written and (1767225600 + written, b"0" * 9))
    read_lines(log.reader, LogEndpoint([(2 * SECOND, "F", b"a"), (9 * SECOND, "F", b"b")]).respond(None, 2))
    assert (log.find_gap_after_takeover() is not None) == is_missing
    assert log.find_gap_after_takeover() is None

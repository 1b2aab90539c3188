"""Tests of logs whose writer is handed over or killed, and of the stored times.

Every line is written. After a hand-over, only lines of the last second are written twice.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.log_endpoint import (
    CONTAINER,
    LogEndpoint,
    join_lines,
    last_frame,
    log_records,
    read_lines,
    split_at,
    written_lines,
)
from trainjob.client import LogLine, WrittenTimes
from trainjob.client.container_log import ContainerLog
from trainjob.client.log_lines import LoggedContainer

UID = "7f8a"
LONGEST = 1 << 18
SECOND = 10**9


class Process:
    """Process that writes to `log`, and continues after the one that has stored `values`."""

    def __init__(self, endpoint, values, log):
        self.endpoint, self.log = endpoint, log
        self.times = WrittenTimes.from_dict(values, UID)
        self.reader = ContainerLog(CONTAINER, self.times.find(CONTAINER.key), print).reader

    def read(self, count, part=1.0, cuts=(), broken=False):
        """Return the new lines of one stream, which ends after a part of the response to it."""
        response = self.endpoint.respond(self.reader.since, count)
        sent = response[: round(part * len(response))]
        return read_lines(self.reader, *split_at(sent, [round(at * len(sent)) for at in cuts]), broken=broken)

    def write(self, lines):
        for line in lines:
            if not line.frame and not line.is_written:
                self.log.append(line)
                self.times.record(line)

    def store(self, *, is_exact=True):
        return json.loads(json.dumps(self.times.to_dict(is_exact=is_exact)))


processes = st.lists(
    st.tuples(
        st.floats(0, 1),  # how much of the log was written by then
        st.one_of(st.floats(0, 1), st.just(1.0)),  # how much of the response arrives
        st.one_of(st.floats(0, 1), st.just(1.0)),  # how many of the lines are written before the process ends
        st.lists(st.floats(0, 1), max_size=2),  # where the stream is cut into chunks
        st.booleans(),  # whether the process reads a second stream, and the log to its end
    ),
    max_size=6,
)


def write_over_processes(endpoint, plan):
    """Return the lines of each process, and the newest time that the one before it has stored."""
    logs, values = [], None
    last = (1.0, 1.0, 1.0, [], True)
    for grown, part, written, cuts, reads_again in [*sorted(plan, key=lambda one: one[0]), last]:
        count, log = round(grown * len(endpoint.records)), []
        process = Process(endpoint, values, log)
        lines = process.read(count, part, cuts, broken=part < 1)
        if reads_again:
            lines += process.read(count) + (process.reader.flush() if count == len(endpoint.records) else [])
        new = [line for line in lines if not (line.frame or line.is_written)]
        process.write(new[: round(written * len(new))])
        logs.append((log, process.times.find(CONTAINER.key)))
        values = process.store()
    return logs


@given(log_records(), processes)
@example([(10**9, "F", b"a"), (10**9, "P", b"b")], [(1.0, 1.0, 1.0, [], True)])
def test_no_line_is_lost_over_handovers_and_only_the_last_second_is_repeated(records, plan):
    lines = [last_frame(line) for line in written_lines(records)]
    for log, newest in write_over_processes(LogEndpoint(records), plan):
        assert all(line.time >= (newest[0] - 1, newest[1]) for line in log if newest and line.time)
    assert join_lines(log) == lines[len(lines) - len(join_lines(log)) :]
    everything = [line for log, _ in write_over_processes(LogEndpoint(records), plan) for line in log]
    assert {*lines} <= {line.text for line in everything} or any(line.continued for line in everything)


@given(log_records(out_of_order=True), processes)
def test_no_line_is_lost_over_handovers_also_if_times_are_out_of_order(records, plan):
    numbered = [(moment, tag, b"%d " % n + text) for n, (moment, tag, text) in enumerate(records)]
    lines = {last_frame(line) for line in written_lines(numbered)}
    assert lines <= {line.text for log, _ in write_over_processes(LogEndpoint(numbered), plan) for line in log}


@pytest.mark.parametrize("letter", [b"x", "é".encode()])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 1.0])
def test_a_long_line_that_is_handed_over_is_written_whole(letter, part):
    line = letter * (3 * LONGEST // len(letter))
    endpoint = LogEndpoint([(1, "F", b"first"), (2, "F", line), (3, "F", b"last")])
    before = Process(endpoint, None, [])
    before.write(before.read(3, part, broken=True))
    after = Process(endpoint, before.store(), [])
    after.write(after.read(3))
    assert join_lines(after.log) == ["first", line.decode(), "last"]


def test_frames_of_a_line_that_began_before_the_handover_are_new():
    """CRI-O writes the parts of a line as they arrive, so a line of frames has the time of its first one."""
    endpoint = LogEndpoint([(SECOND, "F", b"start"), (2 * SECOND, "P", b"10%\r"), (9 * SECOND, "P", b"50%\r99%")])
    before = Process(endpoint, None, [])
    before.write(before.read(2))
    after = Process(endpoint, before.store(), [])
    assert not any(line.is_written for line in after.read(3) + after.reader.flush())


def test_a_process_that_was_killed_says_so():
    process = Process(LogEndpoint([(SECOND, "F", b"a")]), None, [])
    assert not process.times.resumption
    process.write(process.read(1))
    assert "lines of its last second may" in WrittenTimes.from_dict(process.store(), UID).resumption
    killed = WrittenTimes.from_dict(process.store(is_exact=False), UID)
    assert "it was killed or lost, so lines of its last 35 s may" in killed.resumption


def test_times_that_no_reader_used_are_stored_again():
    first = Process(LogEndpoint([(SECOND, "F", b"a")]), None, [])
    first.write(first.read(1))
    values = first.store()
    assert WrittenTimes.from_dict(values, UID).to_dict(is_exact=True) == values


def test_the_times_of_another_log_are_ignored():
    first = Process(LogEndpoint([(SECOND, "F", b"a")]), None, [])
    first.write(first.read(1))
    assert WrittenTimes.from_dict(first.store(), UID).find(CONTAINER.key)
    assert WrittenTimes.from_dict(first.store(), "other").find(CONTAINER.key) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.sampled_from(["log", "times", "a"]), inner),
    max_leaves=12,
)


@given(
    json_values
    | st.builds(lambda times: {"log": UID, "times": times}, st.dictionaries(st.text(max_size=3), json_values))
)
def test_values_that_cannot_be_read_mean_writing_from_the_beginning(values):
    json.dumps(WrittenTimes.from_dict(values, UID).to_dict(is_exact=True))


def test_the_newest_logs_are_stored_in_bounded_size():
    times = WrittenTimes(UID)
    containers = [LoggedContainer("node-0", "ns", f"pod-{n}", f"uid-{n}", "node") for n in range(1000)]
    for number, container in enumerate(containers):
        times.record(LogLine("node-0", "x", log=container, time=(1_700_000_000 + number, b"123456789")))
    stored = times.to_dict(is_exact=True)
    assert len(json.dumps(stored)) < 64_000
    restored = WrittenTimes.from_dict(stored, UID)
    assert restored.find(containers[-1].key) == (1_700_000_999, b"123456789")
    assert restored.find(containers[0].key) is None

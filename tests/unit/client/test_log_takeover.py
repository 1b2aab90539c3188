"""Tests of logs whose writer is handed over or killed, and of their stored positions.

Every line is written; it is written twice only after a kill, and a notice then says so.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.log_endpoint import (
    EPOCH,
    FakeStream,
    LogEndpoint,
    join_lines,
    last_frame,
    log_records,
    read_lines,
    split_at,
    written_lines,
)
from trainjob.client.log_reader import LogReader
from trainjob.client.log_takeover import LogPositions, StoredPosition

UID = "7f8a"
LONGEST = 1 << 18


@dataclass(eq=False)
class Run:
    """One run of a container."""

    key: tuple[str, str, int] = ("pod", "node", 0)


class Process:
    """Process that writes to `log`, and continues after the one that has stored `values`."""

    def __init__(self, endpoint, values, log, at=0.0):
        self.endpoint, self.log = endpoint, log
        self.positions = LogPositions.from_dict(values, UID, EPOCH.timestamp() + at)
        run = Run()
        self.reader = LogReader("node-0", run=run, written_part=self.positions.find_written_part(run))

    def read(self, count, part=1.0, cuts=(), broken=False):
        """Return the new lines of one stream, which ends after a part of the response to it."""
        response = self.endpoint.respond(self.reader.since, count)
        sent = response[: round(part * len(response))]
        return read_lines(self.reader, *split_at(sent, [round(at * len(sent)) for at in cuts]), broken=broken)

    def write(self, lines):
        for line in lines:
            if not line.frame and not line.is_written:
                self.log.append(line)
                self.positions.record(line)

    def store(self, *, is_exact=True):
        return json.loads(json.dumps(self.positions.to_dict(is_exact=is_exact)))


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
    """Return the lines that the processes write one after the other."""
    log, values = [], None
    last = (1.0, 1.0, 1.0, [], True)
    for grown, part, written, cuts, reads_again in [*sorted(plan, key=lambda one: one[0]), last, last]:
        count = round(grown * len(endpoint.records))
        process = Process(endpoint, values, log)
        lines = process.read(count, part, cuts, broken=part < 1)
        if reads_again:
            lines += process.read(count) + (process.reader.flush() if count == len(endpoint.records) else [])
        new = [line for line in lines if not (line.frame or line.is_written)]
        process.write(new[: round(written * len(new))])
        values = process.store()
    return join_lines(log)


@given(log_records(), processes)
@example([(10**9, "F", b"a"), (10**9, "P", b"b")], [(1.0, 1.0, 1.0, [], True)])
def test_each_line_is_written_once_over_handovers(records, plan):
    assert write_over_processes(LogEndpoint(records), plan) == [last_frame(line) for line in written_lines(records)]


@given(log_records(out_of_order=True), processes)
def test_each_line_is_written_once_over_handovers_also_if_times_are_out_of_order(records, plan):
    assert write_over_processes(LogEndpoint(records), plan) == [last_frame(line) for line in written_lines(records)]


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=8))
def test_lines_are_repeated_only_after_a_kill_and_between_notices(count, plan):
    """Each process writes some lines; a killed one has not stored the last of them, or only that it has begun."""
    endpoint = LogEndpoint([(10**9 + 10**8 * n, "F", b"%d" % n) for n in range(count)])
    log, values, written, kills = [], None, 0, 0
    for number, not_stored, is_killed in [*plan, (1000, 0, False)]:
        at = 1.0 + 0.1 * written  # the log's time of the takeover
        process = Process(endpoint, values, log, at)
        lines = [line for line in process.read(count) if not line.is_written]
        own = [line for line in lines[: max(0, number)] if line.position]
        ends = lines.index(own[-1]) + 1 if own else 0
        stored = max(0, ends - not_stored) if is_killed else ends
        process.write(lines[:stored])
        if ends or not is_killed:
            values = process.store(is_exact=not is_killed)
        log += lines[stored:ends]
        kills += is_killed
        written = max([written, *(int(line.text) + 1 for line in own)])
    texts = [line.text for line in log]
    numbers = [int(text) for text in texts if text.isdigit()]
    assert sorted(set(numbers)) == list(range(count))
    seen, marked = -1, False
    for text in texts:
        if not text.isdigit():
            marked = "may appear again" in text
            continue
        assert int(text) == seen + 1 or (marked and int(text) <= seen + 1)
        seen = int(text)
    if not kills:
        assert numbers == list(range(count))


@pytest.mark.parametrize("letter", [b"x", "é".encode()])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 1.0])
def test_a_long_line_that_is_handed_over_is_written_once(letter, part):
    line = letter * (3 * LONGEST // len(letter))
    endpoint = LogEndpoint([(1, "F", b"first"), (2, "F", line), (3, "F", b"last")])
    log = []
    before = Process(endpoint, None, log)
    before.write(before.read(3, part, broken=True))
    after = Process(endpoint, before.store(), log)
    after.write(after.read(3))
    assert join_lines(log) == ["first", line.decode(), "last"]


def test_a_rotated_log_continues():
    records = [(10**9 + 10**8 * n, "F", b"%d" % n) for n in range(50)]
    log = []
    before = Process(LogEndpoint(records), None, log)
    before.write(before.read(30))
    after = Process(LogEndpoint(records[20:]), before.store(), log)
    after.write(after.read(50))
    assert join_lines(log) == [str(n) for n in range(50)]


def test_a_notice_says_that_a_rotated_log_lacks_lines():
    records = [(10**9 + 10**8 * n, "F", b"%d" % n) for n in range(50)]
    log = []
    before = Process(LogEndpoint(records), None, log)
    before.write(before.read(30))
    after = Process(LogEndpoint(records[40:]), before.store(), log)
    after.write(after.read(50))
    *_, notice = [line.text for line in log if not line.text.isdigit()]
    assert notice.startswith("lines after 2026-01-01T00:00:03Z may be missing: the kubelet has rotated this log")
    assert [int(line.text) for line in log if line.text.isdigit()] == [*range(30), *range(40, 50)]


def test_the_log_of_an_earlier_run_is_written_whole():
    """The position is that of the next run, because the pod's event was late."""
    log = []
    before = Process(LogEndpoint([(10**12, "F", b"b1"), (10**12, "F", b"b2")]), None, log)
    before.write(before.read(2))
    after = Process(LogEndpoint([(10**9, "F", b"a1"), (10**9, "F", b"a2")]), before.store(), log)
    after.write(after.read(2))
    assert join_lines(log) == ["b1", "b2", "a1", "a2"]


def test_a_run_that_turns_out_to_be_another_is_stored_under_its_own_key():
    positions, run = LogPositions(UID), Run()
    reader = LogReader(run=run)
    for line in read_lines(reader, LogEndpoint([(10**9, "F", b"a")]).respond(None, 1)):
        positions.record(line)
    run.key = ("pod", "node", 1)
    stored = LogPositions.from_dict(positions.to_dict(is_exact=True), UID, 0.0)
    assert stored.find_written_part(Run(("pod", "node", 1)))
    assert stored.find_written_part(Run(("pod", "node", 0))) is None


def test_positions_that_no_reader_used_are_stored_again():
    log = []
    first = Process(LogEndpoint([(10**9, "F", b"a")]), None, log)
    first.write(first.read(1))
    values = first.store(is_exact=False)
    second = LogPositions.from_dict(values, UID, 0.0)
    assert second.to_dict(is_exact=False) == values
    assert second.to_dict(is_exact=True)["logs"] == values["logs"]  # still not exact, because no reader has passed it


def test_the_positions_of_another_log_are_ignored():
    log = []
    first = Process(LogEndpoint([(10**9, "F", b"a")]), None, log)
    first.write(first.read(1))
    assert LogPositions.from_dict(first.store(), UID, 1.0).is_stored
    assert not LogPositions.from_dict(first.store(), "other", 1.0).is_stored


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.sampled_from(["log", "logs", "a"]), inner),
    max_leaves=12,
)


@given(
    json_values | st.builds(lambda logs: {"log": UID, "logs": logs}, st.dictionaries(st.text(max_size=3), json_values))
)
def test_values_that_cannot_be_read_mean_reading_from_the_beginning(values):
    positions = LogPositions.from_dict(values, UID, 0.0)
    json.dumps(positions.to_dict(is_exact=True))


@given(st.lists(st.integers(0, 2**63), min_size=6, max_size=6))
def test_a_stored_position_is_read_as_it_was_written(values):
    position = StoredPosition.from_list(values)
    assert position is None or StoredPosition.from_list(position.to_list()) == position


def test_the_newest_logs_are_stored_in_bounded_size():
    positions = LogPositions(UID)
    for number in range(1000):
        reader = LogReader(run=Run((f"pod-{number}", "node", 0)))
        endpoint = LogEndpoint([((10**9 + number) * 10**9 % (10**17), "F", b"x")] * 3)
        for line in itertools.chain(*reader.read(FakeStream(endpoint.respond(None, 3)))):
            positions.record(line)
    stored = positions.to_dict(is_exact=True)
    assert len(json.dumps(stored)) < 64_000
    restored = LogPositions.from_dict(stored, UID, 0.0)
    assert restored.find_written_part(Run(("pod-999", "node", 0)))
    assert not restored.find_written_part(Run(("pod-0", "node", 0)))

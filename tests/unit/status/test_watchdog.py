"""Reports of watchdogs, and the rank that they name together."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.status.watchdog import (
    RankEnd,
    RankSteps,
    StepReport,
    StepReports,
    WatchdogReport,
    describe_hang,
    find_hanging_nodes,
    is_hang,
)
from trainjob.status.watchdog import RankState as Rank


def report(*ranks, node=0, size=0, is_alarm=True):
    return WatchdogReport(node, size or len(ranks), ranks, is_alarm, "report")


def waiting(rank, step=41, collective="all_reduce"):
    return Rank(rank, step, 540.0, place="wait (x.py:1)", collective=collective)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (RankEnd(3, 9, 41), "rank 3 was ended by SIGKILL after step 41"),
        (RankEnd(0, 63, None), "rank 0 was ended by signal 63 before its first step"),
        (RankEnd(15, None, 0), "rank 15 has ended after step 0"),
    ],
)
def test_the_end_of_a_rank_is_a_line_for_people_and_programs(end, text):
    assert end.to_line() == f"watchdog: {text}"
    assert RankEnd.from_line(end.to_line()) == end


@given(st.integers(0, 10**7 - 1), st.none() | st.integers(1, 64), st.none() | st.integers(0, 10**18 - 1))
def test_the_end_of_any_rank_is_read_from_its_line(rank, number, step):
    end = RankEnd(rank, number, step)
    assert RankEnd.from_line(end.to_line()) == end
    assert RankEnd.from_line(f"x {end.to_line()}") is RankEnd.from_line(f"{end.to_line()} x") is None


LOADER = Rank(3, 41, 540.0, place="DataLoader.__next__", workers=("open_rows (rows.py:7)",))


def test_the_rank_outside_of_the_collective_operation_is_named():
    reports = [report(*map(waiting, range(3)), LOADER, size=4)]
    assert describe_hang(reports) == (
        "rank 3 of 4 on node-0 has made no step for 9 min since step 41: it is in DataLoader.__next__ "
        "(worker: open_rows (rows.py:7)); 3 ranks wait in all_reduce"
    )


def test_reports_of_several_nodes_are_compared():
    reports = [report(waiting(0), waiting(1), node=0, size=4), report(waiting(2), LOADER, node=1, size=4)]
    assert describe_hang(reports).startswith("rank 3 of 4 on node-1 has made no step for 9 min")
    assert describe_hang(reports).endswith("; 3 ranks wait in all_reduce")


def test_the_text_names_the_node_of_the_cluster():
    assert describe_hang([report(LOADER)], {0: "gpu-17"}).startswith("rank 3 of 4 on node-0 (gpu-17) has made no step")
    assert describe_hang([report(Rank(None, 41, 540.0))], {0: "gpu-17"}).startswith("node-0 (gpu-17) has made no step")
    assert describe_hang([report(LOADER)], {1: "gpu-17"}).startswith("rank 3 of 4 on node-0 has made no step")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("stopped", "its process is stopped by a signal (SIGSTOP)"),
        ("gone", "its process does not exist any more"),
        ("blocked", "its process is blocked in the kernel, in read (x.py:1)"),
    ],
)
def test_a_rank_whose_process_does_not_run_comes_first(state, text):
    ended = Rank(2, 40, 90.0, state, "read (x.py:1)", "barrier")
    assert describe_hang([report(waiting(0), LOADER, ended)]) == (
        f"rank 2 of 4 on node-0 has made no step for 90 s since step 40: {text}; 1 rank waits in all_reduce"
    )


def test_of_several_ranks_those_with_the_lowest_step_are_named():
    slow, slower = (Rank(rank, step, 60.0, place="f (x.py:1)") for rank, step in ((0, 9), (1, 8)))
    assert describe_hang([report(slow, slower)]).startswith("rank 1 of 2")
    assert describe_hang([report(slow, Rank(1, None, 60.0, place="f (x.py:1)"))]) == (
        "rank 1 of 2 on node-0 has made no step for 60 s and none before: it is in f (x.py:1)"
    )


def test_a_rank_in_another_collective_operation_is_named():
    ranks = [waiting(0), waiting(1), waiting(2, collective="barrier")]
    assert describe_hang([report(*ranks)]).startswith("rank 2 of 3 on node-0")


@pytest.mark.parametrize(
    ("collectives", "nodes"),
    [
        (["all_reduce", ""], {1}),
        (["", ""], set()),
        (["all_reduce", "all_reduce"], set()),
        ([""], {0}),
    ],
)
def test_a_node_is_bad_if_others_wait_for_its_ranks(collectives, nodes):
    reports = [report(Rank(node, 5, 9.0, collective=name), node=node) for node, name in enumerate(collectives)]
    assert find_hanging_nodes(reports) == nodes


def test_no_rank_is_named_if_all_wait_in_the_same_operation():
    text = describe_hang([report(waiting(0), waiting(1))])
    assert text == "no rank of 2 has made a step for 9 min: 2 ranks wait in all_reduce"


def test_many_ranks_are_counted():
    ranks = [Rank(rank, 5, 60.0, place="f (x.py:1)") for rank in range(9)]
    assert describe_hang([report(*ranks)]).endswith("; so have 5 more ranks")


def test_a_training_without_ranks_is_its_node():
    text = describe_hang([report(Rank(None, 7, 60.0))])
    assert text == "node-0 has made no step for 60 s since step 7: its place is not known"


def test_without_a_report_there_is_no_text():
    assert describe_hang([]) == ""
    assert describe_hang([report(is_alarm=False)]) == ""  # the training makes steps again


@pytest.mark.parametrize(
    "line",
    ["", "trainjob watchdog: ", "trainjob watchdog: {}", "trainjob watchdog: [1]", 'trainjob watchdog: {"ranks":[1]}',
     'trainjob watchdog: {"node":0,"world_size":1,"ranks":[{"rank":0}],"is_alarm":true,"action":"fail"}'],
)  # fmt: skip
def test_a_line_of_another_form_is_no_report(line):
    assert WatchdogReport.from_line(line) is None


RANKS = st.builds(
    Rank,
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.one_of(st.none(), st.integers(0, 10**9)),
    st.floats(0, 1e6),
    st.sampled_from(["running", "stopped", "gone", "blocked"]),
    st.text(max_size=50),
    st.sampled_from(["", "all_reduce", "barrier"]),
    st.lists(st.text(max_size=20), max_size=3).map(tuple),
)


@given(st.lists(RANKS, min_size=1, max_size=5).map(tuple), st.booleans())
def test_a_report_survives_its_line(ranks, is_alarm):
    original = WatchdogReport(1, 8, ranks, is_alarm, "restart")
    assert WatchdogReport.from_line(f"[rank0]: {original.to_line()}") == original
    assert "\n" not in original.to_line()
    assert describe_hang([original])


def steps(node, moment, slowest, fastest, seconds=1.0):
    return StepReport(node, moment, RankSteps(2 * node, slowest, 2 * node + 1, fastest, seconds))


def test_steps_of_one_moment_are_compared():
    reports = StepReports()
    for report_of in (steps(0, 7, 40, 41), steps(1, 7, 38, 39), steps(0, 8, 50, 50)):
        reports.add(report_of)
    assert reports.newest == RankSteps(2, 38, 1, 41, 1.0)  # node 1 has not reported moment 8
    assert reports.add(steps(1, 8, 50, 50, 0.5))
    assert reports.newest == RankSteps(0, 50, 1, 50, 0.5)
    assert str(reports.newest) == "active 0 s ago"
    assert not reports.add(steps(1, 7, 38, 39))


def test_a_pod_that_reports_no_more_is_left_out_at_the_next_moment():
    reports = StepReports()
    for report_of in (steps(0, 7, 40, 40), steps(1, 7, 40, 40), steps(0, 8, 50, 50), steps(0, 9, 60, 60)):
        reports.add(report_of)
    assert (reports.newest.slowest_step, reports.newest.fastest_step) == (60, 60)


def test_the_text_has_the_slowest_and_the_fastest_rank():
    assert str(RankSteps(3, 40, 0, 42, 540.0)) == "rank 3 at step 40 and rank 0 at step 42, active 9 min ago"


RANK_STEPS = st.builds(RankSteps, seconds=st.floats(0, 1e9))


@given(st.builds(StepReport, st.integers(0, 999), st.integers(0, 10**9), RANK_STEPS))
def test_a_report_of_steps_is_read_as_it_was_written(report_of):
    assert StepReport.from_line(report_of.to_line()) == report_of


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=10,
)
NUMBER = st.integers(0, 9) | JSON


def objects(texts, **fields):
    return st.fixed_dictionaries(dict.fromkeys(texts.split(), NUMBER) | fields)


STATES = objects("rank step seconds state place collective", workers=st.lists(JSON, max_size=2))
REPORTS = objects("node world_size is_alarm action", ranks=st.lists(STATES, max_size=3) | JSON)
STEPS = objects("slowest slowest_step fastest fastest_step seconds")


@given(REPORTS | JSON)
def test_any_line_that_looks_like_a_report_can_be_described(values):
    """A training may print such a line itself."""
    found = WatchdogReport.from_line(f"trainjob watchdog: {json.dumps(values)}")
    if found:
        assert isinstance(describe_hang([found, found]), str)
        assert is_hang([found]) in (True, False)


@given(st.lists(objects("node moment", steps=STEPS | JSON) | JSON, max_size=5))
def test_any_lines_that_look_like_steps_can_be_compared(lines):
    reports = StepReports()
    for values in lines:
        if found := StepReport.from_line(f"trainjob steps: {json.dumps(values)}"):
            reports.add(found)
            assert isinstance(str(reports.newest), str)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"node":0,"moment":1,"steps":{}}', '{"node":0,"moment":1}'])
def test_an_unreadable_report_of_steps_is_no_report(text):
    assert StepReport.from_line(f"trainjob steps: {text}") is None

"""Tests of the comparison of emitted and written lines."""

from __future__ import annotations

import pytest

from tests.chaos.logs.checker import check_lines, numbered_line
from trainjob.client import LogLine

WRITTEN = [numbered_line(0, number, "text") for number in range(5)]
NOTICE = "output since 2026-01-01T00:00:07Z is missing; read it with: kubectl logs"


def check(*texts, written=None, source="node-0"):
    counts = check_lines(written or {"node-0": [WRITTEN]}, [LogLine(source, text) for text in texts]).counts
    return {name: count for name, count in counts.items() if count and name != "lines"}


def test_the_written_lines_are_complete():
    assert check(*WRITTEN) == {}
    assert check_lines({"node-0": [WRITTEN]}, [LogLine("node-0", text) for text in WRITTEN]).lines == 5


def test_a_missing_line_is_lost():
    assert check(*WRITTEN[:2], *WRITTEN[3:]) == {"lost": 1}
    assert check(*WRITTEN[:2]) == {"lost": 3}
    assert check() == {"lost": 5}


def test_a_cut_line_is_lost():
    assert check(*WRITTEN[:4], "0.4 te") == {"lost": 1}
    assert check(*WRITTEN[:4], "0.") == {"lost": 1}


def test_a_line_that_follows_its_own_part_is_repeated():
    assert check(*WRITTEN[:4], "0.4 te", WRITTEN[4]) == {"repeated": 1}


def test_a_notice_at_the_place_of_the_gap_reports_it():
    assert check(*WRITTEN[:2], NOTICE, *WRITTEN[3:]) == {"reported": 1}
    assert check(*WRITTEN[:3], "0.3 t", NOTICE) == {"reported": 2}
    assert check(NOTICE) == {"reported": 5}
    assert check(NOTICE, *WRITTEN[2:]) == {"reported": 2}


def test_a_notice_at_another_place_does_not():
    assert check(NOTICE, *WRITTEN[:2], *WRITTEN[3:]) == {"lost": 1, "unneeded": 1}
    assert check(*WRITTEN[:2], *WRITTEN[3:], NOTICE) == {"lost": 1, "unneeded": 1}


def test_a_notice_without_a_time_does_not_report_a_gap():
    assert check(*WRITTEN[:2], "the rest of the log was not read") == {"lost": 3}


@pytest.mark.parametrize(("stated", "counts"), [("3 lines", {"reported": 3}), ("4 lines", {"lost": 3})])
def test_a_stated_number_must_be_right(stated, counts):
    assert check(*WRITTEN[:2], f"{stated} since 00:00:07 are missing") == counts


def test_a_notice_without_a_missing_line_is_unneeded():
    assert check(*WRITTEN, "the rest of the log was not read") == {"unneeded": 1}


def test_a_notice_of_another_container_does_not_report_a_gap():
    written = {"node-0": [WRITTEN], "node-1": [[]]}
    assert check(NOTICE, written=written, source="node-1") == {"lost": 5, "unneeded": 1}
    assert check(NOTICE, written=written, source="") == {"reported": 5}


def test_repeated_and_disordered_lines_are_counted():
    assert check(*WRITTEN, WRITTEN[4]) == {"repeated": 1}
    assert check(WRITTEN[1], WRITTEN[0], *WRITTEN[2:]) == {"disordered": 1}
    assert check(*WRITTEN, "0.9 text.") == {"repeated": 1}


def test_pieces_of_a_long_line_are_joined_and_frames_are_ignored():
    pieces = [LogLine("node-0", "0.0 te", continued=True), LogLine("node-0", "xt.")]
    frames = [LogLine("node-0", "10 %", frame=True)]
    assert check_lines({"node-0": [WRITTEN[:1]]}, [*frames, *pieces]).counts.pop("lines") == 1
    assert not check_lines({"node-0": [WRITTEN[:1]]}, [*frames, *pieces]).problems


def test_the_kubelets_own_texts_are_no_notices():
    error = "too many open files"
    lines = [LogLine("node-0", text) for text in (error, *WRITTEN[:4], WRITTEN[4] + error)]
    assert not check_lines({"node-0": [WRITTEN]}, lines, foreign={error}).problems


def test_each_run_of_a_container_has_its_own_order():
    again = [numbered_line(1, number, "text") for number in range(5)]
    runs = {"node-0": [WRITTEN, again]}
    assert check(*again[:2], *WRITTEN, *again[2:], written=runs) == {}
    assert check(NOTICE, *again, written=runs) == {"reported": 5}

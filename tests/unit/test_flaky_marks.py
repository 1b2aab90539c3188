"""Tests of the rule that few cases are marked flaky, each with a reason and a date."""

from __future__ import annotations

from datetime import date

import pytest

from tests.flaky import MAX_FLAKY_CASES, FlakyCase, find_all_flaky_cases, find_flaky_cases

MARKED = """
import pytest

@pytest.mark.flaky(reason="two controllers race", since="2026-11-22")
def test_a_race(): ...

@pytest.mark.slow
def test_another(): ...
"""


def test_marked_cases_are_found():
    assert list(find_flaky_cases(MARKED, "tests/test_a.py")) == [
        FlakyCase("tests/test_a.py", "test_a_race", "two controllers race", date(2026, 11, 22))
    ]


@pytest.mark.parametrize("mark", ["", "()", '(reason="", since="2026-11-22")', '(reason="it races")'])
def test_a_mark_without_its_reason_or_date_is_refused(mark):
    with pytest.raises(ValueError, match="needs reason= and since="):
        list(find_flaky_cases(f"@pytest.mark.flaky{mark}\ndef test_a(): ...", "tests/test_a.py"))


def test_a_mark_for_a_module_is_refused():
    with pytest.raises(ValueError, match="mark the test function itself"):
        list(
            find_flaky_cases('pytestmark = pytest.mark.flaky(reason="it races", since="2026-11-22")', "tests/test_a.py")
        )


def test_few_cases_are_marked():
    assert len(find_all_flaky_cases()) <= MAX_FLAKY_CASES

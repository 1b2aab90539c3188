"""Tests of public v1 jobs that were judged by hand before the converter saw them."""

from __future__ import annotations

import pytest

from tests.unit.migrate.judged_jobs import JOBS, Outcome, load, measure
from tools.evidence.migration import PAGE, render_page


@pytest.mark.parametrize("name", JOBS)
def test_a_public_job_has_the_result_of_its_judgment(name):
    found = measure(name)
    if load(name)[0].differs:  # a documented rule, which refuses more than necessary
        assert found.outcome is Outcome.REFUSED_WRONGLY
        return
    assert found.differences == []
    assert found.outcome in (Outcome.RIGHT, Outcome.REFUSED_RIGHTLY)


def test_every_judgment_gives_its_reason():
    assert [name for name in JOBS if not load(name)[0].why] == []


def test_the_page_has_the_present_results():
    assert PAGE.read_text("utf-8") == render_page(), "run `make migration`"

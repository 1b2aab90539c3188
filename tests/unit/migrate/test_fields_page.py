"""Test of the generated table in docs/how-to/from-training-operator.md."""

from __future__ import annotations

from tests.unit.migrate.fields_page import PAGE, update_page


def test_the_table_of_fields_is_current():
    page = PAGE.read_text()
    assert update_page(page) == page, "run: python -m tests.unit.migrate.fields_page"

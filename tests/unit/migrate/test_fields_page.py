"""docs/migrating.md says what the code does."""

from __future__ import annotations

from tests.unit.migrate.fields_page import PAGE, update_page


def test_the_table_of_fields_is_what_becomes_of_them():
    page = PAGE.read_text()
    assert update_page(page) == page, "run: python -m tests.unit.migrate.fields_page"

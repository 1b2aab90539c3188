"""Measurements of tests, as rows for pages of docs/.

`pytest --evidence DIR` appends them to DIR/<table>.jsonl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--evidence", metavar="DIR", help="append the measurements of the tests to files in DIR")


@pytest.fixture(scope="session")
def evidence(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that appends a measured row with the test's ID to a table.

    The function does nothing without `--evidence`.
    """
    folder = request.config.getoption("--evidence")

    def append(table: str, **cells: str | int | float) -> None:
        if folder:
            path, test = Path(folder) / f"{table}.jsonl", os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:  # one write per row, because several processes append
                file.write(json.dumps({**cells, "test": test}) + "\n")

    return append


def read_rows(folder: Path, table: str) -> list[dict[str, object]]:
    """Return the rows of a table in the order in which they were appended."""
    path = folder / f"{table}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

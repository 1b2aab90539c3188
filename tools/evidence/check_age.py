"""Check that each page of docs/evidence names its measurement, and that the measured code has not changed much since.

Usage: check_age.py

A measurement that this clone's history does not reach is only reported. Generators write commit, date, machine and
command with `tools.evidence.measurement`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tools.evidence.measurement import (
    LIMIT,
    MEASURED,
    NEVER_RUN,
    PAGES,
    WITHOUT_MEASUREMENT,
    read_ages,
)


def check_page(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield what is to be said about a page, and whether it is an error."""
    if name not in MEASURED:
        yield f"{name}: name the code that it measures in tools/evidence/measurement.py", True
        return
    ages = list(dict.fromkeys(read_ages(name, text)))
    if not ages and NEVER_RUN not in text:
        yield f"{name}: no commit and date of its measurement; generate it again", True
    for age in ages:
        if not age.has_commit:
            yield f"{name}: {age.record}: generate the page again in a clone with its history", True
            continue
        is_old = age.commits is not None and age.commits > LIMIT
        yield f"{name}: {age}" + (f", {LIMIT} are allowed; measure again" if is_old else ""), is_old


def main() -> int:
    """Check all pages; return the exit status."""
    failed = False
    for page in sorted(PAGES.glob("*.md")):
        if page.name in WITHOUT_MEASUREMENT:
            continue
        for text, is_error in check_page(page.name, page.read_text("utf-8")):
            failed = failed or is_error
            print(text, file=sys.stderr if is_error else sys.stdout)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Tests of tools/docs/stage.py, which checks the pages and prepares the documentation site."""

from __future__ import annotations

import pytest

from tools.docs import stage

OWN = "https://github.com/trainjob/trainjob/blob/main"
NAMES = ["README.md", "docs/index.md", "docs/how-to/queues.md", "docs/images/page.png", "examples/airflow/queued.py"]
QUEUES = "# Queues: Kueue\n\n## Why `it` [waits](../index.md)\n"


def check(text, page="docs/how-to/page.md"):
    pages = {page: text, "docs/how-to/queues.md": QUEUES, "docs/index.md": "# Home\n"}
    return [(found.page, found.line, found.message) for found in stage.check_pages(pages, [*NAMES, page])]


@pytest.mark.parametrize(
    "target",
    [
        "queues.md",
        "queues.md#queues-kueue",
        "queues.md#why-it-waits",
        "#page",
        "../index.md#home",
        "../../examples/airflow",
        "../../examples/airflow/queued.py",
        f"{OWN}/docs/how-to/queues.md#why-it-waits",
        "https://example.org/docs/nowhere.md#nothing",
        "mailto:security@example.org",
    ],
)
def test_a_link_to_an_existing_file_or_heading_is_accepted(target):
    assert check(f"# Page\n\nSee [this]({target}).\n") == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("kueue.md", "kueue.md: the file docs/how-to/kueue.md does not exist"),
        ("queues.md#kueue", "queues.md#kueue: docs/how-to/queues.md has no heading with this anchor"),
        ("#nothing", "#nothing: docs/how-to/page.md has no heading with this anchor"),
        ("../../examples/lost.py", "../../examples/lost.py: the file examples/lost.py does not exist"),
        (f"{OWN}/docs/queues.md", f"{OWN}/docs/queues.md: the file docs/queues.md does not exist"),
    ],
)
def test_a_link_to_nothing_is_reported_with_its_line(target, message):
    assert check(f"# Page\n\nSee [this]({target}).\n") == [("docs/how-to/page.md", 3, message)]


def test_links_and_headings_in_code_do_not_count():
    text = "# Page\n\n```text\n[a](b.md)\n# Lost\n```\n\nA span `[a](b.md)`.\n\n[no](#lost)\n"
    assert check(text) == [("docs/how-to/page.md", 10, "#lost: docs/how-to/page.md has no heading with this anchor")]


def test_lists_that_python_markdown_would_not_render_are_reported():
    assert check("# Page\n\nText:\n* one\n") == [("docs/how-to/page.md", 4, "write a blank line before a list")]
    assert check("# Page\n\n* one\n  * two\n") == [("docs/how-to/page.md", 4, "indent a nested list by 4 spaces")]
    assert check("# Page\n\n* one\n  more\n* two\n    * three\n\n1. four\n") == []


def test_the_lists_of_pages_outside_the_site_are_not_checked():
    assert check("# Page\n\nText:\n* one\n", "README.md") == []


def test_links_out_of_docs_become_web_addresses():
    text = "[example](../../examples/airflow/sweep.py), [all](../../examples/airflow), [page](queues.md#a)\n"
    assert stage.with_web_addresses("docs/how-to/page.md", text) == (
        f"[example]({OWN}/examples/airflow/sweep.py), "
        "[all](https://github.com/trainjob/trainjob/tree/main/examples/airflow), [page](queues.md#a)\n"
    )
